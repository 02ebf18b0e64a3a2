"""Launches of the built wheel on a device: streams, graphs, threads, other arrays than torch's, very large
tensors, mistakes."""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch", reason="the package is tested with torch tensors")

from memory import assert_equal, whole  # noqa: E402  torch may be missing

N = 100_003


@pytest.fixture
def generator():
    return torch.Generator(device="cuda").manual_seed(2)


@pytest.fixture
def numbers(generator):
    """Two vectors and one of NaN for their sum."""
    return (
        *(whole(generator, (N,), torch.float32, 1000) for _ in range(2)),
        torch.full((N,), float("nan"), device="cuda"),
    )


def is_nan(tensor) -> bool:
    return bool(tensor.isnan().all())


def test_code_of_the_device_is_taken(package, numbers, capsys):
    """The wheel with PTX for sm_80 alone leaves it to the driver; the other has cubins for both
    architectures."""
    package.explain(package.launch.vector_add, *numbers, N)
    major, minor = torch.cuda.get_device_capability()
    own = {8: "sm_80", 9: "sm_90"}.get(major)
    target = "sm_80+ptx" if package.__name__.endswith("_sm_80") and major > 8 else own
    if target is None:
        pytest.skip(f"the package has nothing for compute capability {major}.{minor}")
    taken = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.endswith(": taken")]
    assert [name.rstrip("a") for name in taken] == [target]


def test_empty_inputs_launch_nothing(package):
    nothing, out = torch.empty(0, device="cuda"), torch.full((64,), float("nan"), device="cuda")
    half, double = (
        torch.full((64,), float("nan"), device="cuda", dtype=dtype)
        for dtype in (torch.float16, torch.float64)
    )
    package.launch.vector_add(nothing, nothing, nothing, 0)
    package.launch.vector_add(out, out, out, 0)
    package.launch.sum(nothing, double, 0)
    package.launch.softmax(out, out, 8, 8, 8, 0)
    package.launch.layer_norm(out, out, out, out, out, out, 8, 8, 8, 1e-5, 0)
    package.launch.matmul(out, out, out, 0, 8, 8, 8, 1, 8, 1, 8, 1)
    package.launch.matmul(out, out, out, 8, 0, 8, 8, 1, 8, 1, 8, 1)
    package.launch.flash_attention(
        half, half, half, half, out, 1.0, *(0, 0, 64) * 4, 1, 1, 0, 0, 1, HEAD_DIM=64, IS_CAUSAL=True
    )
    package.launch.flash_attention(
        half, half, half, half, out, 1.0, *(0, 0, 64) * 4, 1, 1, 1, 1, 0, HEAD_DIM=64, IS_CAUSAL=False
    )
    torch.cuda.synchronize()
    assert is_nan(out) and is_nan(half) and is_nan(double)


@pytest.mark.parametrize("way", ["current", "object", "handle"])
def test_launches_go_to_the_caller_s_stream(package, numbers, way):
    """The stream is busy first, so that a launch anywhere else would read the numbers before they are there."""
    x, y, out = numbers
    late = torch.full_like(x, float("nan"))
    package.launch.vector_add(x, y, out, N)  # Loads the cubin, which may wait for the device.
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        late.copy_(x)
        if way == "current":
            package.launch.vector_add(late, y, out, N)
    if way != "current":
        package.launch.vector_add(late, y, out, N, stream=stream if way == "object" else stream.cuda_stream)
    assert not stream.query(), "a launch does not wait"
    stream.synchronize()
    assert_equal(out, x.double() + y.double(), way)


def test_the_default_stream_by_its_handle(package, numbers):
    x, y, out = numbers
    torch.cuda.synchronize()
    package.launch.vector_add(x, y, out, N, stream=0)
    torch.cuda.synchronize()
    assert_equal(out, x.double() + y.double(), "stream 0")


def test_graphs(fresh_package, numbers):
    """A graph is captured once the cubins are loaded; before, the error says what to do."""
    x, y, out = numbers
    partial, total = (
        torch.zeros(N // 1024 + 1, device="cuda", dtype=torch.float64),
        torch.empty(1, device="cuda"),
    )
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out.fill_(0)
        with pytest.raises(fresh_package.LaunchError, match=r"call \w+\.preload\(0\) before the capture"):
            fresh_package.launch.vector_add(x, y, out, N)
    assert not fresh_package.is_loaded("vector_add")
    assert fresh_package.preload(0, kernels=["vector_add", "sum", fresh_package.sum_partials]) >= 6
    assert fresh_package.is_loaded("vector_add") and not fresh_package.is_loaded("softmax")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fresh_package.launch.vector_add(x, y, out, N)
        fresh_package.launch.vector_add(out, y, out, N)
        fresh_package.launch.sum(out, partial, N)
        fresh_package.sum_partials(partial, total, partial.numel())
    for step in range(3):
        x.add_(step)
        out.fill_(float("nan"))
        graph.replay()
        right = x.double() + 2 * y.double()
        assert_equal(out, right, step)
        assert abs(total.item() - right.sum().item()) <= 1e-6 * right.abs().sum().item()


def test_threads_on_streams_of_their_own(fresh_package, generator):
    """Four threads, two types, from the first launch on, which loads the cubins."""
    start, errors = threading.Barrier(4, timeout=60), []
    types = (torch.float32, torch.float16) * 2
    vectors = [tuple(whole(generator, (N,), dtype, 50) for _ in range(2)) for dtype in types]
    torch.cuda.synchronize()

    def work(x, y):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                out = torch.empty_like(x)
                start.wait()
                for _ in range(50):
                    out.fill_(float("nan"))
                    fresh_package.launch.vector_add(x, y, out, N)
                    assert_equal(out, x.double() + y.double(), x.dtype)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in vectors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def launches_to_repeat(package, generator):
    """One call of each kernel at a size that fills the device, with its outputs."""
    half, single = torch.float16, torch.float32
    x, y = (
        whole(generator, (1 << 20,), half, 9),
        torch.randn(1 << 20, generator=generator, device="cuda").to(half),
    )
    a, b = (torch.randn(1024, 1024, generator=generator, device="cuda").to(half) for _ in range(2))
    heads = torch.randn(3, 1, 8, 1024, 64, generator=generator, device="cuda").to(half)
    out, c, o = (torch.empty_like(tensor) for tensor in (x, a, heads[0]))
    mean, rstd, lse = (torch.zeros(size, dtype=single, device="cuda") for size in (1024, 1024, 8 * 1024))
    sums = torch.zeros(1024, dtype=torch.float64, device="cuda")
    one = torch.empty(1, dtype=single, device="cuda")
    yield lambda: package.launch.vector_add(x, y, out, 1 << 20), (out,)
    yield lambda: (package.launch.sum(y, sums, 1 << 20), package.sum_partials(sums, one, 1024)), (sums, one)
    ticket, short = (
        torch.zeros(1, dtype=torch.int32, device="cuda"),
        torch.empty(1, dtype=half, device="cuda"),
    )
    yield lambda: package.sum_at_once(y, sums, ticket, short, 1 << 20), (short, ticket)
    yield lambda: package.launch.softmax(a, c, 1024, 1024, 1024, 1024), (c,)
    yield (
        lambda: package.launch.layer_norm(a, c, b, b, mean, rstd, 1024, 1024, 1024, 1e-5, 1024),
        (c, mean, rstd),
    )
    yield lambda: package.launch.matmul(a, b, c, 1024, 1024, 1024, 1024, 1, 1024, 1, 1024, 1), (c,)
    yield lambda: package.launch.matmul(a, b, c, 1000, 1023, 999, 1024, 1, 1024, 1, 1024, 1), (c,)
    for causal in (False, True):
        arguments = (*heads, o, lse, 0.125, *o.stride()[:3] * 4, 8, 8, 1024, 1024, 1)
        yield lambda: package.launch.flash_attention(*arguments, HEAD_DIM=64, IS_CAUSAL=causal), (o, lse)  # noqa: B023


def test_results_are_the_same_bits_every_time(package, generator):
    for number, (launch, outputs) in enumerate(launches_to_repeat(package, generator)):
        launch()
        first = [output.view(torch.uint8).clone() for output in outputs]
        different = torch.zeros((), dtype=torch.int64, device="cuda")
        for _ in range(100):
            launch()
            for output, expected in zip(outputs, first):
                different += (output.view(torch.uint8) != expected).sum()
        assert different.item() == 0, f"launch {number}"


class ArrayInterface:
    """What CuPy, Numba and others show of an array."""

    def __init__(self, tensor):
        self.tensor = tensor
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__


class DLPack:
    """What any other library shows of an array."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **keywords):
        return self.tensor.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


@pytest.mark.parametrize(
    "form", [ArrayInterface, DLPack, lambda tensor: tensor.data_ptr(), torch.nn.Parameter]
)
def test_other_arrays(package, numbers, form):
    x, y, out = numbers
    package.launch.vector_add(form(x), form(y), form(out), N, dtype="fp32")
    assert_equal(out, x.double() + y.double(), form)


def test_more_elements_than_32_bits_count(package):
    """Vectors of 2^31 and more elements, and rows that lie 2^30 apart."""
    if torch.cuda.mem_get_info()[0] < 24 << 30:
        pytest.skip("the device has less than 24 GiB free")
    n = (1 << 31) + 17
    x = torch.zeros(n, dtype=torch.float16, device="cuda")
    x[::4099] = 1
    x[-1] = 3
    for place in range(3):
        x[(place << 30) + place] = place + 1
    partial, out = (
        torch.zeros(n // 1024 + 1, device="cuda", dtype=torch.float64),
        torch.empty(1, device="cuda"),
    )
    for count in (1 << 31, (1 << 31) - 1, n):
        partial.zero_()
        package.launch.sum(x, partial, count)
        package.sum_partials(partial, out, partial.numel())
        assert out.item() == x[:count].sum(dtype=torch.float64).item(), count
    total = torch.empty_like(x)
    for count in (1 << 31, n):
        total.fill_(float("nan"))
        package.launch.vector_add(x, x, total, count)
        assert torch.equal(total[:count], x[:count] * 2) and is_nan(total[count:])
    stride, columns = 1 << 30, 16
    total.fill_(float("nan"))
    package.launch.softmax(x, total, stride, stride, columns, 3)
    for row in range(3):
        right = torch.softmax(x[row * stride :][:columns].double(), dim=0)
        assert ((total[row * stride :][:columns].double() - right).abs() <= 2**-10 * right).all(), row
    far = (1 << 31) - 32
    x[far] = 5
    total.fill_(float("nan"))
    package.launch.matmul(x, x, total, 2, 1, 1, far, 1, 1, 1, far, 1)
    assert (total[0].item(), total[far].item()) == ((x[0] * x[0]).item(), (x[far] * x[0]).item())


def mistakes(package, x, half):
    """Calls that are wrong, the error of each, and what its message says."""
    add, softmax, attention = (
        package.launch.vector_add,
        package.launch.softmax,
        package.launch.flash_attention,
    )
    no_variant, on_cpu = package.NoVariantError, torch.zeros(64)
    double, whole_numbers = x.double(), x.int()
    head = (half, half, half, half, x, 0.125, *(64,) * 12, 1, 1, 1, 1, 1)
    return (
        (lambda: add(x, on_cpu, x, 64), ValueError, "y is not on a CUDA device; move it there with y.cuda()"),
        (lambda: add(x, x, x), TypeError, "vector_add() is missing the argument 'n'"),
        (lambda: add(x, x, x, 64, 1), TypeError, "takes 4 positional arguments, not 5"),
        (lambda: add(x, x, x, 64, size=3), TypeError, "has no argument 'size'"),
        (lambda: add(x, x, x, 6.4), TypeError, "n must be an integer, not float"),
        (
            lambda: add(x, x, [1.0], 64),
            TypeError,
            "out must be a tensor on a CUDA device or an address, not list",
        ),
        (lambda: add(double, double, double, 64), no_variant, "x holds fp64, not fp32"),
        (lambda: add(whole_numbers, x, x, 64), no_variant, "x holds i32, not fp32"),
        (lambda: add(x, x, half, 64), no_variant, "out holds fp16, not fp32"),
        (lambda: add(x, x, x, 64, dtype="bf16"), no_variant, "dtype = bf16 is not fp32"),
        (lambda: add(x, x, x, 2**63), no_variant, "does not fit i64"),
        (lambda: add(x, x, x, 2**62), package.LaunchError, "a launch takes 0 to 2147483647"),
        (lambda: add(x, x, x, 64, stream="main"), TypeError, "stream must be a torch.cuda.Stream"),
        (
            lambda: softmax(x, x, 8, 8, 40_000, 1),
            no_variant,
            "n_cols <= 32768 does not hold (n_cols = 40000)",
        ),
        (lambda: softmax(x, x, 8, 8, 8), TypeError, "softmax() is missing the argument 'n_rows'"),
        (lambda: attention(*head, IS_CAUSAL=True), TypeError, "is missing the keyword argument 'HEAD_DIM'"),
        (lambda: attention(*head, HEAD_DIM=80, IS_CAUSAL=True), no_variant, "HEAD_DIM = 80 is not 64"),
        (lambda: attention(half[1:], *head[1:], HEAD_DIM=64, IS_CAUSAL=True), no_variant, "the address of q"),
        (
            lambda: attention(*head[:8], 60, *head[9:], HEAD_DIM=64, IS_CAUSAL=True),
            no_variant,
            "stride_qn = 60",
        ),
        (
            lambda: package.launch.matmul(x, x, x, 8, 8, 8, 2**31, 1, 8, 1, 8, 1),
            no_variant,
            "stride_am = 2147483648 does not fit i32",
        ),
        (lambda: package.preload(77), package.LaunchError, "there is no CUDA device 77"),
    )


def test_mistakes_are_reported_and_change_nothing(package):
    x = torch.full((64,), float("nan"), device="cuda")
    half = torch.full((128,), float("nan"), dtype=torch.float16, device="cuda")
    for call, error, text in mistakes(package, x, half):
        with pytest.raises(error) as caught:
            call()
        assert text in str(caught.value)
    assert is_nan(x) and is_nan(half)
    package.launch.vector_add(torch.ones_like(x), torch.ones_like(x), x, 64)
    assert (x == 2).all(), "the next call is as good as any"


def test_tensors_on_two_devices(package, numbers):
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one CUDA device")
    x, y, out = numbers
    with pytest.raises(ValueError, match=r"y is on device 1, and an argument before it is on device 0"):
        package.launch.vector_add(x, y.to("cuda:1"), out, N)
    other = [tensor.to("cuda:1") for tensor in numbers]
    package.launch.vector_add(*other, N)
    assert torch.cuda.current_device() == 0
    assert_equal(other[2], other[0].double() + other[1].double(), "device 1, while device 0 is current")
