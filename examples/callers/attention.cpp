// Attention with grouped-query heads from C++, compared with a computation in double on the CPU.

#include <kbuild_kernels/kernels.h>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <vector>

namespace {

void check(cudaError_t code)
{
    if (code != cudaSuccess)
        throw std::runtime_error(cudaGetErrorString(code));
}

// Four dimensions of bf16 in the memory of a device, and their values on the host.
class Tensor {
public:
    Tensor(int64_t batch, int64_t heads, int64_t length, int64_t depth)
        : shape{batch, heads, length, depth}, values(batch * heads * length * depth)
    {
        check(cudaMalloc(&view.data, bytes()));
        view.device = {kDLCUDA, 0};
        view.ndim = 4;
        view.dtype = {kDLBfloat, 16, 1};
        view.shape = shape; // without strides: dense
    }
    Tensor(const Tensor &) = delete;
    ~Tensor() { cudaFree(view.data); }

    void fill(std::mt19937 &random)
    {
        std::normal_distribution<float> normal;
        for (auto &value : values)
            value = __float2bfloat16(normal(random));
        check(cudaMemcpy(view.data, values.data(), bytes(), cudaMemcpyHostToDevice));
    }
    void fetch() { check(cudaMemcpy(values.data(), view.data, bytes(), cudaMemcpyDeviceToHost)); }

    double at(int64_t z, int64_t h, int64_t n, int64_t d) const
    {
        return __bfloat162float(values[((z * shape[1] + h) * shape[2] + n) * shape[3] + d]);
    }
    size_t bytes() const { return values.size() * sizeof values[0]; }

    int64_t shape[4];
    std::vector<__nv_bfloat16> values;
    DLTensor view{};
};

// One row of causal attention; the last query sees the last key.
std::vector<double> row(const Tensor &q, const Tensor &k, const Tensor &v, int64_t z, int64_t h, int64_t n)
{
    const int64_t depth = q.shape[3], group = q.shape[1] / k.shape[1], seen = n + 1 + k.shape[2] - q.shape[2];
    std::vector<double> out(depth);
    double sum = 0;
    for (int64_t m = 0; m < seen; m++) {
        double score = 0;
        for (int64_t d = 0; d < depth; d++)
            score += q.at(z, h, n, d) * k.at(z, h / group, m, d);
        const double p = std::exp(score / std::sqrt(double(depth)));
        sum += p;
        for (int64_t d = 0; d < depth; d++)
            out[d] += p * v.at(z, h / group, m, d);
    }
    for (auto &value : out)
        value /= sum;
    return out;
}

void run()
{
    const int64_t batch = 2, heads = 8, groups = 2, queries = 256, keys = 300, depth = 128;
    std::mt19937 random{1};
    Tensor q(batch, heads, queries, depth), k(batch, groups, keys, depth), v(batch, groups, keys, depth);
    Tensor out(batch, heads, queries, depth);
    for (Tensor *tensor : {&q, &k, &v})
        tensor->fill(random);

    cudaStream_t stream;
    check(cudaStreamCreate(&stream));
    kbuild_kernels::flash_attention(q.view, k.view, v.view, out.view, /*causal=*/true, /*sm_scale=*/{}, /*lse=*/nullptr, stream);
    check(cudaStreamSynchronize(stream));
    out.fetch();

    try { // Errors are exceptions, with names and shapes.
        kbuild_kernels::flash_attention(q.view, k.view, v.view, k.view);
    } catch (const kbuild_kernels::error &error) {
        std::printf("a wrong call: %s\n", error.what());
    }

    double difference = 0;
    for (int64_t n : {int64_t{0}, queries / 2, queries - 1}) {
        const auto right = row(q, k, v, 1, 5, n);
        for (int64_t d = 0; d < depth; d++)
            difference = std::fmax(difference, std::fabs(out.at(1, 5, n, d) - right[d]));
    }
    std::printf("largest difference from double: %.4f\n", difference);
    if (!(difference < 0.02))
        throw std::runtime_error("that is too much");
}

} // namespace

int main()
{
    try {
        run();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
