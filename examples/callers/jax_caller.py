"""Attention and layer norm of this repository's wheel in a model of JAX's, with gradients, compared with JAX's own.

pip install 'jax[cuda13]' dist/kbuild_kernels-*.whl
python examples/callers/jax_caller.py
"""

import jax
import jax.numpy as jnp
import kbuild_kernels as kernels

BATCH, HEADS, LENGTH, HEAD = 2, 4, 512, 64
WIDTH = HEADS * HEAD


def own_attention(q, k, v):
    scores = jnp.einsum("zhnd,zhmd->zhnm", q, k).astype(jnp.float32) * HEAD**-0.5
    scores = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), scores, -jnp.inf)
    return jnp.einsum("zhnm,zhmd->zhnd", jax.nn.softmax(scores).astype(v.dtype), v)


def own_layer_norm(x, weight, bias):
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    return (centred * jax.lax.rsqrt(wide.var(-1, keepdims=True) + 1e-5) * weight + bias).astype(x.dtype)


def loss(parameters, x, attention, layer_norm):
    """A block of a transformer: norm, heads, attention, and what it adds to x."""
    y = layer_norm(x, parameters["weight"], parameters["bias"])
    heads = (y @ parameters["qkv"]).reshape(BATCH, LENGTH, 3, HEADS, HEAD)
    q, k, v = (heads[:, :, i].swapaxes(1, 2) for i in range(3))
    out = x + attention(q, k, v).swapaxes(1, 2).reshape(x.shape) @ parameters["out"]
    return (out.astype(jnp.float32) ** 2).sum()  # a mean's gradients are too small for float16


def kernel_attention(q, k, v):
    return kernels.flash_attention(q, k, v, causal=True)


def inputs():
    keys = jax.random.split(jax.random.key(0), 3)
    parameters = {
        "weight": jnp.ones(WIDTH, jnp.float16),
        "bias": jnp.zeros(WIDTH, jnp.float16),
        "qkv": jax.random.normal(keys[0], (WIDTH, 3 * WIDTH), jnp.float16) * WIDTH**-0.5,
        "out": jax.random.normal(keys[1], (WIDTH, WIDTH), jnp.float16) * WIDTH**-0.5,
    }
    return parameters, jax.random.normal(keys[2], (BATCH, LENGTH, WIDTH), jnp.float16)


step = jax.jit(jax.value_and_grad(loss), static_argnums=(2, 3))


def main():
    parameters, x = inputs()
    value, gradients = step(parameters, x, kernel_attention, kernels.layer_norm)
    expected, own_gradients = step(parameters, x, own_attention, own_layer_norm)
    print(f"loss: {value:.7g} with kbuild's kernels, {expected:.7g} with JAX's own")
    for name, own in own_gradients.items():
        difference = jnp.abs(gradients[name] - own).max() / jnp.abs(own).max()
        print(f"gradient of {name}: {difference:.1e} apart, of its largest element")
        assert difference < 1e-2, name


if __name__ == "__main__":
    main()
