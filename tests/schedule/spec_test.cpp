#include "lowtide/schedule/spec.h"

#include <gtest/gtest.h>

#include "tests/schedule/error_of.h"

namespace lowtide {
namespace {

TEST(ScheduleSpec, CanonicalLinesPrintAsTheyWereRead) {
  for (const char* text : {
           "RR 3:8 n=8 grad=8",
           "CT 2:32 n=32 grad=6:8",
           "ER 3:8 n=8 grad=8 k=2.5",
           "RTH 3:8 n=8 grad=8 c=0.5",
           "static 8 grad=8",
           "fp32",
           "deficit 3:8 grad=8 steps=1000",
           "window 3:8 grad=8 from=1000 to=2000",
           "delayed 500 RR 3:8 n=8 grad=8",
           "delayed 12.5% at=fp32 static 4 grad=8",
           "delayed 0 at=16 window 3:8 grad=8 from=0 to=9223372036854775807",
           "table 8x100 5x1500 8x400 grad=8",
           "static 8 grad=8 budget=0.63",
           "table 8x100 5x1500 8x400 grad=8 budget=0.63",
           "RR 3:8 n=8 grad=(LR 6:8 n=2) c=0.5 budget=0.63 then fp32 last=5%",
           "matched 3:8 grad=8 alpha=0.5 budget=0.63 then 32 last=100",
           "delayed 5% at=fp32 deficit 3:8 grad=(table 8x3 6x7) steps=5 then 8 last=0",
           "delayed 10% table 3x1 grad=6",
           "price 3:8 grad=8 every=100 budget=0.63",
           "waterfill 3:8 grad=8 every=100 budget=0.63",
           "delayed 5% at=fp32 waterfill 2:16 grad=6 every=7 budget=0.4 then fp32 last=5%",
           "table 5[4/6/5]x100 5[4/7/5]x1500 grad=8",
           "delayed 5% at=fp32 price 2:16 grad=6 every=7 budget=0.4 then fp32 last=5%",
           "progressive 3,4,6,8 grad=8 window=100 threshold=0.01 patience=3",
           "delayed 10% progressive 2,32 grad=6:8 window=1 threshold=1e-09 patience=1",
       }) {
    const ScheduleSpec spec = parse_schedule(text);
    EXPECT_EQ(to_string(spec), text);
    EXPECT_EQ(parse_schedule(to_string(spec)), spec);
  }
}

TEST(ScheduleSpec, FillsInAndMakesCanonical) {
  EXPECT_EQ(to_string(parse_schedule("rr")), "RR 3:8 n=8 grad=8");
  EXPECT_EQ(to_string(parse_schedule("  etv\tn=4   4:6 ")), "ETV 4:6 n=4 grad=8");
  EXPECT_EQ(to_string(parse_schedule("STATIC")), "static 8 grad=8");
  EXPECT_EQ(to_string(parse_schedule("static 5:5 grad=06")), "static 5 grad=6");
  EXPECT_EQ(to_string(parse_schedule("FP32")), "fp32");
  EXPECT_EQ(to_string(parse_schedule("RR c=0.90")), "RR 3:8 n=8 grad=8");
  EXPECT_EQ(to_string(parse_schedule("TABLE 8x2 grad=6 8x3 4x5")), "table 8x5 4x5 grad=6");
  EXPECT_EQ(to_string(parse_schedule("PRICE budget=0.5")), "price 3:8 grad=8 every=100 budget=0.5");
  EXPECT_EQ(to_string(parse_schedule("progressive 3,8")),
            "progressive 3,8 grad=8 window=100 threshold=0.01 patience=3");
}

TEST(ScheduleSpec, HighestBits) {
  EXPECT_EQ(parse_schedule("RR 3:6 grad=4:7").highest(), (Bits{6, 7}));
  EXPECT_EQ(parse_schedule("progressive 3,4,9 grad=8").highest(), (Bits{9, 8}));
  EXPECT_EQ(parse_schedule("table 3x5 9x1 8x4").highest(), (Bits{9, 8}));
  EXPECT_EQ(parse_schedule("fp32").highest(), Bits{});
}

struct Mistake {
  const char* text;
  const char* message;
};
class ScheduleSpecMistake : public testing::TestWithParam<Mistake> {};

TEST_P(ScheduleSpecMistake, IsOneLineThatSaysWhatIsWrong) {
  const std::string message = error_of([&] { parse_schedule(GetParam().text); });
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_TRUE(message.starts_with("schedule '")) << message;
}

INSTANTIATE_TEST_SUITE_P(
    All, ScheduleSpecMistake,
    testing::Values(
        Mistake{"", "no schedule named"}, Mistake{"sine", "unknown name 'sine'; expected one of RR"},
        Mistake{"RR 3:8 n=8\nn=9", "n is given twice"}, Mistake{"RR 3:8 3:8", "given twice"},
        Mistake{"RR 3:5:8", "not a range of bits"}, Mistake{"RR 3-8", "not a number of bits"},
        Mistake{"RR 0", "or the schedule fp32"}, Mistake{"RR n=", "n: '' is not a whole number"},
        Mistake{"RR n=8.5", "not a whole number"}, Mistake{"RR n=99999999999999999999", "whole number"},
        Mistake{"RR k=4", "RR has no parameter 'k'; it has n, grad, c, budget"},
        Mistake{"RR c=nan", "not a number"}, Mistake{"RR c=inf", "not a number"},
        Mistake{"RR =8", "no parameter ''"}, Mistake{"static 3:8", "one number of bits"},
        Mistake{"static 8 grad=6:8", "needs a schedule that moves"},
        Mistake{"static 8 n=8", "static has no parameter 'n'; it has grad, budget"},
        Mistake{"fp32 8", "fp32 takes nothing more"}, Mistake{"fp32 grad=8", "it has none"},
        Mistake{"RR grad=8:6", "gradient bits 8:6 are the wrong way round"},
        Mistake{"deficit 3:8", "needs steps="}, Mistake{"deficit steps=-1", "0 or more"},
        Mistake{"window from=3", "needs to="}, Mistake{"delayed", "delayed STEPS SCHEDULE"},
        Mistake{"delayed 500", "delayed STEPS SCHEDULE"}, Mistake{"delayed 500 at=8", "no schedule named"},
        Mistake{"delayed many RR", "not a whole number"}, Mistake{"delayed % RR", "not a number"},
        Mistake{"matched", "needs budget=SHARE"}, Mistake{"price", "price needs budget=SHARE"},
        Mistake{"price every=0 budget=0.5", "at least 2"},
        Mistake{"waterfill", "waterfill needs budget=SHARE"}, Mistake{"waterfill n=8", "no parameter 'n'"},
        Mistake{"price budget=0.5 n=8", "no parameter 'n'"},
        Mistake{"matched every=5", "matched has no parameter 'every'"}, Mistake{"RR budget=0", "above 0"},
        Mistake{"RR budget=-1", "above 0"}, Mistake{"matched budget=1 alpha=-1", "0 or more"},
        Mistake{"table 8[8/8]x5 budget=0.5", "bits of layers cannot be shifted to a budget"},
        Mistake{"static 8 grad=(table 6[5/6]x10)", "gradient bits are those of all layers"},
        Mistake{"progressive 3,8 budget=0.5", "no parameter 'budget'"},
        Mistake{"RR grad=(LR 6:8", "no closing bracket"}, Mistake{"RR grad=()", "no schedule named"},
        Mistake{"RR grad=(LR 6:8 grad=8)", "LR has no parameter 'grad'"},
        Mistake{"RR grad=(LR budget=0.5)", "LR has no parameter 'budget'"},
        Mistake{"RR grad=(fp32)", "known beforehand"},
        Mistake{"RR grad=(delayed 5 LR)", "outside the brackets"},
        Mistake{"RR grad=(LR 6:8 then fp32 last=5)", "outside the brackets"},
        Mistake{"RR then fp32", "expected then BITS"},
        Mistake{"RR then fp32 last=5% grad", "expected then BITS"},
        Mistake{"RR then 1 last=5%", "not a number of bits"},
        Mistake{"RR then 8 last=100%", "less than 100%"}, Mistake{"fp32 then 8 last=5%", "fp32 has no tail"},
        Mistake{"progressive 3,8 then fp32 last=5%", "has no tail"}, Mistake{"table", "needs runs of bits"},
        Mistake{"table 8", "'8' is not a run such as 8x100"}, Mistake{"table 1x5", "not a number of bits"},
        Mistake{"table 8x0", "at least 1"}, Mistake{"table 8x-5", "at least 1"},
        Mistake{"table 8x5x5", "not a whole number"}, Mistake{"table 8x5 n=8", "table has no parameter 'n'"},
        Mistake{"table @bits.csv", "is a file"}, Mistake{"table 8x5 grad=6:8", "one number of gradient bits"},
        Mistake{"table 8x999999999999999 4x2", "more than 1000000000000000 steps"},
        Mistake{"progressive", "list of bits"}, Mistake{"progressive 8", "list of bits"},
        Mistake{"progressive 3,3", "must rise"}, Mistake{"progressive 3,,8", "'' is not a number"},
        Mistake{"progressive 3,8 window=0", "at least 1"},
        Mistake{"progressive 3,8 threshold=1", "less than 1"},
        Mistake{"progressive 3,8 patience=0", "at least 1"}));

}  // namespace
}  // namespace lowtide
