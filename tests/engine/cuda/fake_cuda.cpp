#include "tests/engine/cuda/fake_cuda.h"

#include <map>
#include <utility>

namespace lowtide::fake_cuda {
namespace {

// What kernels declare themselves (as ptxas reports of those that ask for the most) is taken off what they may ask for.
constexpr std::size_t kDeclared = 16, kWithoutAsking = 48 * 1024 - kDeclared;

struct State {
  Gpu gpu = kH200;
  std::map<const void*, std::string> kernels;
  std::map<const void*, std::size_t> asked_for;
  std::vector<Launch> launches;
  Launch next;  // what <<<>>> says
  cudaError_t error = cudaSuccess;
};
State& state() {
  static State all;
  return all;
}

cudaError_t refuse(cudaError_t error) { return state().error = error; }

// Largest grid: 2^31 - 1 blocks in x, 65,535 in y and z.
bool is_valid(const Launch& of) {
  constexpr unsigned kMostX = 0x7fffffff, kMost = 0xffff, kMostThreads = 1024;
  const auto within = [](unsigned n, unsigned most) { return n >= 1 && n <= most; };
  return within(of.grid.x, kMostX) && within(of.grid.y, kMost) && within(of.grid.z, kMost) &&
         within(of.block.x * of.block.y * of.block.z, kMostThreads);
}

cudaError_t launch(const void* kernel, Launch of) {
  State& s = state();
  of.kernel = s.kernels[kernel];
  const auto asked = s.asked_for.find(kernel);
  if (!is_valid(of)) return refuse(cudaErrorInvalidConfiguration);
  if (of.shared_bytes > (asked == s.asked_for.end() ? kWithoutAsking : asked->second))
    return refuse(cudaErrorInvalidValue);
  s.launches.push_back(std::move(of));
  return cudaSuccess;
}

}  // namespace

void use(const Gpu& gpu) {
  state().gpu = gpu;
  state().asked_for.clear();
  state().launches.clear();
  state().error = cudaSuccess;
}

const std::vector<Launch>& launches() { return state().launches; }

}  // namespace lowtide::fake_cuda

namespace fake = lowtide::fake_cuda;

extern "C" {

cudaError_t cudaGetLastError() { return std::exchange(fake::state().error, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorInvalidConfiguration ? "invalid configuration argument" : "invalid argument";
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
  const fake::Gpu& gpu = fake::state().gpu;
  *value = attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin ? gpu.shared_bytes : gpu.multiprocessors;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute /*dynamic shared memory*/, int bytes) {
  const auto asked = static_cast<std::size_t>(bytes),
             most = static_cast<std::size_t>(fake::state().gpu.shared_bytes);
  if (asked + fake::kDeclared > most) return fake::refuse(cudaErrorInvalidValue);
  fake::state().asked_for[kernel] = asked;
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void*, int, std::size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemcpyFromSymbol(void*, const void*, std::size_t, std::size_t, cudaMemcpyKind) {
  return cudaErrorInvalidValue;
}

cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void**, std::size_t shared_bytes,
                             cudaStream_t) {
  return fake::launch(kernel, {.kernel = {}, .grid = grid, .block = block, .shared_bytes = shared_bytes});
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* of, const void* kernel, void** arguments) {
  return cudaLaunchKernel(kernel, of->gridDim, of->blockDim, arguments, of->dynamicSmemBytes, of->stream);
}

// What nvcc makes of kernels and of <<<>>> (crt/host_runtime.h).
void** __cudaRegisterFatBinary(void*) { return nullptr; }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 0; }
void __cudaRegisterFunction(void**, const char* kernel, char*, const char* name, int, uint3*, uint3*, dim3*,
                            dim3*, int*) {
  fake::state().kernels[kernel] = name;
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes, CUstream_st*) {
  fake::state().next = {.kernel = {}, .grid = grid, .block = block, .shared_bytes = shared_bytes};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes, void*) {
  const fake::Launch& next = fake::state().next;
  *grid = next.grid;
  *block = next.block;
  *shared_bytes = next.shared_bytes;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* handle, const void* kernel) {
  *handle = static_cast<cudaKernel_t>(const_cast<void*>(kernel));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               std::size_t shared_bytes, cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}
}
