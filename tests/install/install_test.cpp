// What `make install` installs, used from outside the tree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/shell.h"
#include "tests/io/scratch.h"
#include "tests/train/small_run.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Install : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new ScratchFolder;
    prefix_ = folder_->path() / "prefix";
    // Of what belongs to no component, which is everything, the list of files has another name than that of `make install`.
    const Finished installed =
        shell("cmake --install " LOWTIDE_BINARY_DIR " --component Unspecified --prefix " + prefix_.string());
    ASSERT_EQ(installed.code, 0) << installed.text;
  }
  static void TearDownTestSuite() { delete folder_; }

  static inline ScratchFolder* folder_ = nullptr;
  static inline fs::path prefix_;
};

TEST_F(Install, EverythingIsInItsPlace) {
  for (const char* file : {"bin/lowtide", "include/lowtide/train/trainer.h", "share/man/man1/lowtide-train.1",
                           "share/bash-completion/completions/lowtide", "share/zsh/site-functions/_lowtide",
                           "share/fish/vendor_completions.d/lowtide.fish", "share/lowtide/recipes/demo.toml",
                           "share/doc/lowtide/README.md", "share/doc/lowtide/docs/library.md"}) {
    EXPECT_TRUE(fs::exists(prefix_ / file)) << file;
  }
}

TEST_F(Install, TheProgramFindsItsRecipesByName) {
  const Finished cost =
      shell("cd / && " + (prefix_ / "bin/lowtide").string() + " cost --recipe cifar10-resnet74");
  EXPECT_EQ(cost.code, 0);
  EXPECT_THAT(cost.text, HasSubstr("cifar-resnet74, CR 3:8"));
}

// A copy of the example outside of the tree, built against the package: a network that Lowtide does not have is trained,
// stopped and resumed by what its own program says.
TEST_F(Install, ANetworkOfOnesOwnIsTrained) {
  const fs::path example = folder_->path() / "own-network", data = folder_->path() / "data";
  fs::copy(prefix_ / "share/doc/lowtide/examples/own-network", example);
  write_small_dataset(data);
  const Finished built = shell(
      "cd " + example.string() + " && CMAKE_PREFIX_PATH='" + prefix_.string() +
      ":" LOWTIDE_PREFIX_PATH "' cmake -B build -G Ninja " LOWTIDE_CMAKE_ARGUMENTS " && cmake --build build");
  ASSERT_EQ(built.code, 0) << built.text;
  const std::string out = (folder_->path() / "run").string();
  const Finished trained = shell((example / "build/own-network").string() + " --data-dir " + data.string() +
                                 " --validation 50 --batch 20 --steps 100 --out " + out);
  ASSERT_EQ(trained.code, 0) << trained.text;
  EXPECT_THAT(trained.text, HasSubstr("small-net: CR 3:8 n=8 grad=8, 100 steps"));
  EXPECT_THAT(trained.text, HasSubstr("test accuracy"));
  const Finished compared = shell((prefix_ / "bin/lowtide").string() + " compare " + out);
  EXPECT_EQ(compared.code, 0) << compared.text;
  const Finished wrong = shell((example / "build/own-network").string() + " --data-dir " + data.string() +
                               " --validation 0 --model smal-net --out " + out + "2");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.text, HasSubstr("did you mean 'small-net'?"));
}

}  // namespace
}  // namespace lowtide
