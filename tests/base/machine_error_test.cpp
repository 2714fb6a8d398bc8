#include "lowtide/base/machine_error.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <vector>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

// As libtorch throws it, with what it adds of places in its source.
std::string of_libtorch(const std::string& message) {
  try {
    TORCH_CHECK(false, message);
  } catch (const c10::Error& error) {
    return machine_error(error).value_or("");
  }
  return "nothing was thrown";
}

// What PyTorch 2.x adds to errors of CUDA.
constexpr const char* kAdvice =
    "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below "
    "might be "
    "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to "
    "enable "
    "device-side assertions.\n";

TEST(MachineError, MemoryOfTheHost) {
  for (const char* message : {"[enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't "
                              "allocate memory: you tried to allocate "
                              "4 bytes. Error code 12 (Cannot allocate memory)",
                              "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't "
                              "allocate memory: you tried to allocate "
                              "400 bytes. Error code 12 (Cannot allocate memory)",
                              "Storage size calculation overflowed with sizes=[9223372036854775807, 3]",
                              "numel: integer multiplication overflow"}) {
    EXPECT_THAT(of_libtorch(message), testing::StartsWith("out of memory; choose a smaller --batch"))
        << message;
  }
  EXPECT_THAT(machine_error(std::bad_alloc()).value_or(""), testing::StartsWith("out of memory; "));
  EXPECT_THAT(machine_error(std::length_error("vector::_M_default_append")).value_or(""),
              testing::StartsWith("out of memory; "));
}

TEST(MachineError, MemoryOfAGpu) {
  for (const std::string message :
       {"CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total capacity; 13.00 GiB already "
        "allocated)",
        "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.72 GiB of which "
        "3.00 GiB is "
        "free. Process 7 has 136 GiB memory in use.",
        "CUDA error: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED"}) {
    EXPECT_THAT(of_libtorch(message + kAdvice),
                testing::AllOf(testing::StartsWith("out of memory on the GPU; "),
                               testing::HasSubstr("--recompute"), testing::HasSubstr("--jobs")))
        << message;
  }
}

TEST(MachineError, AGpuThatIsMissingOrTooOld) {
  for (const std::string message :
       {"No CUDA GPUs are available", "CUDA error: no CUDA-capable device is detected"})
    EXPECT_THAT(of_libtorch(message + kAdvice), testing::StartsWith("CUDA finds no GPU; "));
  for (const std::string message : {"CUDA error: no kernel image is available for execution on the device",
                                    "CUDA error: invalid device function"})
    EXPECT_THAT(of_libtorch(message + kAdvice), testing::HasSubstr("too old"));
}

TEST(MachineError, DriversAndGpusThatFailSayWhatTheySaid) {
  EXPECT_EQ(
      of_libtorch(
          "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a "
          "driver from http://www.nvidia.com/Download/index.aspx"),
      "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a "
      "driver from "
      "http://www.nvidia.com/Download/index.aspx; mend the driver, or use --device cpu");
  EXPECT_THAT(
      of_libtorch("The NVIDIA driver on your system is too old (found version 11040). Please update your GPU "
                  "driver by downloading and installing a new version"),
      testing::HasSubstr("(found version 11040)"));
  EXPECT_THAT(
      of_libtorch(std::string("CUDA error: CUDA driver version is insufficient for CUDA runtime version") +
                  kAdvice),
      testing::HasSubstr("insufficient"));
  for (const std::string message :
       {"CUDA error: uncorrectable ECC error encountered", "CUDA error: unspecified launch failure",
        "CUDA error: all CUDA-capable devices are busy or unavailable",
        "CUDA unknown error - this may be due to an incorrectly set up environment",
        "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"}) {
    const std::string line = of_libtorch(message + kAdvice);
    EXPECT_THAT(line, testing::StartsWith(message + "; the GPU failed: "));
    EXPECT_THAT(line, testing::Not(testing::HasSubstr("\n")));
  }
  // Of a kernel's launch in torch-free code.
  EXPECT_THAT(machine_error(
                  std::runtime_error("CUDA: uncorrectable ECC error encountered, at the launch of norm_add"))
                  .value_or(""),
              testing::HasSubstr("at the launch of norm_add; the GPU failed"));
}

TEST(MachineError, MistakesOfOursAndOfUsersAreNotTheMachines) {
  for (const std::string message :
       {"CUDA error: an illegal memory access was encountered", "CUDA error: device-side assert triggered",
        "CUDA error: invalid configuration argument",
        "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"})
    EXPECT_EQ(of_libtorch(message + kAdvice), "") << message;
  EXPECT_EQ(machine_error(std::runtime_error("CUDA: invalid argument, at the launch of norm_add")),
            std::nullopt);
  EXPECT_EQ(machine_error(UserError("images.bin: out of memory")), std::nullopt);
  EXPECT_EQ(machine_error(std::logic_error("trainer.cpp:7: this should hold")), std::nullopt);
}

}  // namespace
}  // namespace lowtide
