#include "lowtide/tasks/setup.h"

#include <gtest/gtest.h>

namespace lowtide {
namespace {

// libtorch's own default is TF32 for convolutions. It only says what CUDA is to do, so no GPU is needed.
TEST(Tf32, IsAsTheRecipeSaysAndOffOtherwise) {
  const auto allowed = [](const std::string& device, bool tf32) {
    Recipe recipe;
    recipe.running.device = device;
    recipe.running.tf32 = tf32;
    make_execution(recipe.precision, recipe.running, recipe.training.seed);
    const at::Context& context = at::globalContext();
    EXPECT_EQ(context.allowTF32CuDNN(), context.allowTF32CuBLAS())
        << "convolutions and matrix products alike";
    return context.allowTF32CuDNN();
  };
  EXPECT_TRUE(allowed("cuda", true));
  EXPECT_FALSE(allowed("cuda", false));
  EXPECT_TRUE(allowed("cuda", true));
  EXPECT_FALSE(allowed("cpu", true));
}

}  // namespace
}  // namespace lowtide
