// How kernels are launched on GPUs that are made up: that none is refused, and what is chosen by shared memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "lowtide/base/cuda_launch.h"
#include "lowtide/engine/cuda/depthwise.h"
#include "lowtide/engine/cuda/kernels.h"
#include "lowtide/engine/cuda/matrix.h"
#include "tests/engine/cuda/fake_cuda.h"

namespace lowtide::cuda {
namespace {

using fake_cuda::Gpu;
using fake_cuda::kA100;
using fake_cuda::kDesktop;
using fake_cuda::kH200;

// Square images and kernels, padded so that steps of 1 keep the size.
struct Layer {
  int images, size, inputs, outputs, kernel, stride = 1;
  bool depthwise = false;

  ConvGeometry geometry() const {
    ConvGeometry g;
    g.images = images;
    g.height = g.width = size;
    g.inputs = inputs;
    g.outputs = outputs;
    g.kernel_rows = g.kernel_cols = kernel;
    g.stride_rows = g.stride_cols = stride;
    g.pad_rows = g.pad_cols = kernel / 2;
    g.rows = g.cols = (size + 2 * g.pad_rows - kernel) / stride + 1;
    g.depthwise = depthwise;
    return g;
  }
};
std::ostream& operator<<(std::ostream& out, const Layer& l) {
  return out << l.images << " images of " << l.size << " x " << l.size << ", " << l.inputs << " to "
             << l.outputs << ", kernel " << l.kernel << ", stride " << l.stride
             << (l.depthwise ? ", depthwise" : "");
}

void launch_output(const Layer& layer) {
  OutputArguments a;
  a.g = layer.geometry();
  layer.depthwise ? depthwise_output(a, nullptr) : conv_output(a, nullptr);
}
void launch_input_gradient(const Layer& layer) {
  InputGradientArguments a;
  a.g = layer.geometry();
  layer.depthwise ? depthwise_input_gradient(a, nullptr) : conv_input_gradient(a, nullptr);
}
void launch_weight_gradient(const Layer& layer) {
  WeightGradientArguments a;
  a.g = layer.geometry();
  layer.depthwise ? depthwise_weight_gradient(a, nullptr) : conv_weight_gradient(a, nullptr);
}

std::size_t most_asked_for() {
  std::size_t most = 0;
  for (const fake_cuda::Launch& launch : fake_cuda::launches()) most = std::max(most, launch.shared_bytes);
  return most;
}
bool was_launched(const std::string& kernel) {
  return std::any_of(fake_cuda::launches().begin(), fake_cuda::launches().end(),
                     [&](const auto& launch) { return launch.kernel.find(kernel) != std::string::npos; });
}

// A refused launch throws.
TEST(Launches, OfNetworksAreRefusedByNoGpu) {
  for (const Gpu& gpu : {kH200, kA100, kDesktop}) {
    for (const int images : {1, 32, 128, 1000}) {
      std::vector<Layer> layers{{images, 32, 3, 16, 3}, {images, 224, 3, 64, 7, 2}};
      for (const int channels : {16, 32, 64, 128, 256, 512}) {
        for (const int size : {1, 2, 4, 7, 8, 14, 16, 28, 32, 56, 112}) {
          for (const int stride : {1, 2}) {
            layers.push_back({images, size, channels, channels * stride, 3, stride});
            layers.push_back({images, size, channels, channels * stride, 1, stride});
            layers.push_back({images, size, channels, 4 * channels, 1, stride});
            layers.push_back({images, size, 4 * channels, channels, 1, stride});
            layers.push_back({images, size, 3 * channels, 3 * channels, 3, stride, true});
          }
        }
      }
      for (const Layer& layer : layers) {
        SCOPED_TRACE(testing::Message() << gpu.name << ", " << layer);
        use(gpu);
        EXPECT_NO_THROW(launch_output(layer));
        EXPECT_NO_THROW(launch_input_gradient(layer));
        EXPECT_NO_THROW(launch_weight_gradient(layer));
      }
    }
  }
}

// What a block takes there was written down before it was chosen by a GPU's shared memory.
TEST(Launches, OfAnH200StayAsTheyWere) {
  const auto bytes_of = [](void (*launch)(const Layer&), const Layer& layer, const Gpu& gpu) {
    use(gpu);
    launch(layer);
    return most_asked_for();
  };
  const Layer wide{128, 16, 32, 64, 3, 2}, deep{64, 56, 64, 64, 3};
  EXPECT_EQ(bytes_of(launch_weight_gradient, wide, kH200), 110'080u);
  EXPECT_EQ(bytes_of(launch_weight_gradient, wide, kA100), 110'080u);
  EXPECT_LE(bytes_of(launch_weight_gradient, wide, kDesktop), 99u * 1024);
  EXPECT_TRUE(was_launched("weight_gradient_kernel"));
  EXPECT_EQ(bytes_of(launch_input_gradient, deep, kH200), 108'800u);
  EXPECT_EQ(bytes_of(launch_input_gradient, deep, kA100), 108'800u);
  EXPECT_LE(bytes_of(launch_input_gradient, deep, kDesktop), 99u * 1024);
}

// Too many images of a pixel for a tile on any GPU.
TEST(Launches, GatherWhatNoTileHasRoomFor) {
  use(kH200);
  launch_output({8192, 1, 64, 64, 3});
  EXPECT_LE(most_asked_for(), most_shared_bytes());
}

TEST(Launches, OfNothingAreRefused) {
  use(kH200);
  EXPECT_THROW(launch_output({0, 8, 16, 16, 5}), std::runtime_error);
  EXPECT_THROW(launch_output({0, 8, 16, 16, 3}), std::runtime_error);
}

TEST(Launches, OfInputGradientsWhereThereAreKernels) {
  for (int kernel = 1; kernel <= 16; ++kernel) {
    for (int stride = 1; stride <= 4; ++stride) {
      for (const int pad : {0, kernel / 2, kernel - 1, kernel + 2}) {
        for (int size = std::max(1, kernel - 2 * pad); size <= 70; ++size) {
          ConvGeometry g;
          g.height = size;
          g.kernel_rows = kernel;
          g.stride_rows = stride;
          g.pad_rows = pad;
          g.rows = (size + 2 * pad - kernel) / stride + 1;
          g.width = g.cols = g.kernel_cols = 1;
          EXPECT_TRUE(has_conv_input_gradient(g))
              << "kernel " << kernel << ", stride " << stride << ", pad " << pad << ", size " << size;
        }
      }
    }
  }
  EXPECT_FALSE(has_conv_input_gradient(Layer{1, 20, 4, 4, 3, 5}.geometry()));
  EXPECT_FALSE(has_conv_input_gradient(Layer{1, 80, 4, 4, 33}.geometry()));
  EXPECT_THROW(launch_input_gradient({1, 20, 4, 4, 3, 5}), std::runtime_error);
}

TEST(Launches, OfNormsOfManyChannels) {
  use(kDesktop);
  for (const int channels : {64, 2816, 2824, 3072, 4096}) {
    NormGradientArguments a;
    a.n = 8LL * channels;
    a.channels = channels;
    EXPECT_NO_THROW(norm_gradient_range(a, nullptr)) << channels;
    EXPECT_NO_THROW(norm_gradient_encode(a, nullptr)) << channels;
    a.n = (1LL << 32) + channels;
    EXPECT_THROW(norm_gradient_encode(a, nullptr), std::runtime_error);
  }
}

TEST(Launches, OfCodesOfAnyNumber) {
  use(kH200);
  const NoiseCounter counter{};
  alignas(16) float x[8]{};
  for (std::int64_t n = 1; n < 300; ++n) {
    EncodeArguments a;
    a.x = x;
    a.rows = 1;
    a.length = n;
    a.bits = 8;
    EXPECT_NO_THROW(kCudaQuantizer.encode(a, nullptr)) << n;
    a.counter = &counter;
    EXPECT_NO_THROW(kCudaQuantizer.encode(a, nullptr)) << n;
  }
}

// Floats are read sixteen bytes at a time only where they begin at such an address.
TEST(Launches, OfCodesOfAPart) {
  alignas(16) float x[8]{};
  for (const std::int64_t rows : {1, 4}) {
    for (int first = 0; first < 8; ++first) {
      use(kH200);
      EncodeArguments a;
      a.x = x + first;
      a.rows = rows;
      a.length = 256;
      a.bits = 8;
      kCudaQuantizer.encode(a, nullptr);
      EXPECT_EQ(was_launched("plainly"), first % 4 == 0) << rows << " rows from " << first << " on";
      EXPECT_EQ(was_launched("encode_bytes"), first % 4 != 0) << rows << " rows from " << first << " on";
    }
  }
}

TEST(Launches, OfStacksOfManyMatrices) {
  use(kH200);
  MatrixCodes codes;
  codes.matrices = 100'000;
  codes.rows = 70;
  codes.columns = 130;
  char work = 0;
  EXPECT_NO_THROW(halves_by_rows(codes, {}, nullptr));
  EXPECT_NO_THROW(halves_by_columns(codes, {}, &work, nullptr));
  EXPECT_NO_THROW(value_limbs(codes, nullptr, {}, &work, nullptr));
  EXPECT_NO_THROW(bare_halves(codes, {}, nullptr));
}

// An error is told where it is made, and to nobody else.
TEST(Launches, ThatAreRefusedSayWhose) {
  use(kH200);
  EncodeArguments a;
  a.rows = 1;
  a.bits = 8;
  try {
    kCudaQuantizer.encode(a, nullptr);
    FAIL() << "codes of nothing";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "CUDA: invalid configuration argument, at the launch of codes");
  }
  EXPECT_NO_THROW(check_launch("the next"));
}

}  // namespace
}  // namespace lowtide::cuda
