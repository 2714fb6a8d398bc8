#include "lowtide/io/terminal.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace lowtide {
namespace {

TEST(Terminal, WholeCharactersThatFit) {
  EXPECT_EQ(cut_to_columns("step 10/20", 7), "step 10");
  EXPECT_EQ(cut_to_columns("step 10/20", 10), "step 10/20");
  EXPECT_EQ(cut_to_columns("step 10/20", 100), "step 10/20");
  EXPECT_EQ(cut_to_columns("step", 0), "");
  EXPECT_EQ(cut_to_columns("", 5), "");
  EXPECT_EQ(cut_to_columns("für", 2), "fü");
  // Two columns each; half of one is not shown.
  EXPECT_EQ(cut_to_columns("潮位表", 5), "潮位");
  EXPECT_EQ(cut_to_columns("潮位表", 6), "潮位表");
  // The accent belongs to the letter before it.
  EXPECT_EQ(cut_to_columns("e\u0301a", 1), "e\u0301");
  // Latin-1, not UTF-8.
  EXPECT_EQ(cut_to_columns("f\xfcr", 2), "f\xfc");
}

TEST(Terminal, ColumnsAreThoseOfNow) {
  int ours = -1, theirs = -1;
  winsize size{.ws_row = 24, .ws_col = 100, .ws_xpixel = 0, .ws_ypixel = 0};
  if (openpty(&ours, &theirs, nullptr, nullptr, &size) != 0) GTEST_SKIP() << "no pseudo-terminal here";
  EXPECT_EQ(terminal_columns(theirs), 100);
  size.ws_col = 40;
  ioctl(ours, TIOCSWINSZ, &size);
  EXPECT_EQ(terminal_columns(theirs), 40);
  size.ws_col = 0;
  ioctl(ours, TIOCSWINSZ, &size);
  EXPECT_EQ(terminal_columns(theirs), 80);
  close(ours);
  close(theirs);
}

TEST(Terminal, APipeIsNone) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(terminal_columns(ends[1]), 0);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace lowtide
