#include "lowtide/schedule/price.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lowtide/schedule/runs.h"
#include "tests/schedule/error_of.h"

namespace lowtide {
namespace {

constexpr std::int64_t kSteps = 2000;

double cosine_rate(std::int64_t step) {
  return 0.5 * (1 + std::cos(M_PI * static_cast<double>(step) / static_cast<double>(kSteps)));
}

std::unique_ptr<Schedule> make(const std::string& text, std::int64_t steps = kSteps,
                               const Rates& rates = cosine_rate) {
  return make_schedule(parse_schedule(text), steps, rates);
}

// What a training would lose at some bits after so many steps: falls towards a floor, with rounding's damage on top.
struct Training {
  double damage = 8;         // times 4^-bits
  double speed = 1.0 / 300;  // of the fall, a step

  double loss(std::int64_t step, int bits) const {
    return 0.3 + 2 * std::exp(-speed * static_cast<double>(step)) + std::ldexp(damage, -2 * bits);
  }
};

struct Played {
  std::vector<Bits> bits;
  std::int64_t cost = 0;  // of steps and probes
  std::int64_t probes = 0;
};

template <typename Losses>
Played play(Schedule& schedule, std::int64_t steps, Losses&& losses, std::int64_t from = 0) {
  Played played;
  for (std::int64_t step = from; step < steps; ++step) {
    played.bits.push_back(schedule.at(step));
    played.cost += step_cost(played.bits.back());
    if (const auto probe = schedule.probe_after(step)) {
      const int coarse = probe->coarse.forward, fine = probe->fine.forward;
      EXPECT_EQ(fine, coarse + 1);
      played.cost += coarse * coarse + fine * fine;
      ++played.probes;
      schedule.observe_probe({losses(step, coarse), losses(step, fine)});
    }
  }
  return played;
}

// Whatever the losses, also such as no training has.
double wild_loss(std::int64_t step, int bits, std::uint64_t seed) {
  std::uint64_t x =
      seed * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(step) * 31 + static_cast<std::uint64_t>(bits);
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  switch (x % 9) {
    case 0:
      return std::nan("");
    case 1:
      return std::numeric_limits<double>::infinity();
    case 2:
      return -1e300;
    default:
      return std::exp(static_cast<double>(x % 2000) / 100 - 10);
  }
}

TEST(Price, MeetsTheBudgetWithItsProbesWhateverItHears) {
  for (const std::int64_t steps : {8, 400, 437, 2000}) {
    for (const char* line : {"price 3:8 every=2 budget={}", "price 5:6 grad=4 every=2 budget={}",
                             "price 3:8 every=100 budget={}", "price 2:16 grad=8 every=50 budget={}"}) {
      for (const double share : {0.42, 0.63, 0.82, 0.9, 1.0}) {
        const std::string text = fmt::format(fmt::runtime(line), share);
        const ScheduleSpec spec = parse_schedule(text);
        if (spec.every > steps / 4 || error_of([&] { make(text, steps); }) != "") continue;
        for (std::uint64_t seed = 0; seed < 20; ++seed) {
          SCOPED_TRACE(fmt::format("{} over {} steps, seed {}", text, steps, seed));
          const auto schedule = make(text, steps);
          const Played played =
              play(*schedule, steps, [&](auto step, int bits) { return wild_loss(step, bits, seed); });
          EXPECT_EQ(played.probes, steps / spec.every - 2);
          const auto budget = static_cast<std::int64_t>(
              std::floor(share * static_cast<double>(steps * step_cost(spec.highest())) * (1 + 1e-12)));
          EXPECT_LE(played.cost, budget);
          // Below it by less than one more raised step would cost.
          EXPECT_LT(budget - played.cost,
                    step_cost(spec.highest()) - step_cost({spec.bits.high - 1, spec.grad.high}));
        }
      }
    }
  }
}

// Between 7 and 8 bits lie 31 bit operations.
TEST(Price, MeetsTheBudgetOfAnOrdinaryTraining) {
  for (const double share : {0.40, 0.63, 0.82}) {
    const auto schedule = make(fmt::format("price 3:8 budget={}", share));
    const Training training;
    const Played played =
        play(*schedule, kSteps, [&](auto step, int bits) { return training.loss(step, bits); });
    const auto left = std::llround(share * kSteps * step_cost({8, 8})) - played.cost;
    EXPECT_TRUE(left >= 0 && left < 31) << left << " of " << share;
    EXPECT_EQ(played.probes, 18);
  }
}

// By hand, of 3:8 with every=100: after two probes at level b with damage d·4^-b and a fall f an interval, the price is where
// b is right. Then damage that grows sixteenfold is two bits more, one an interval; damage that vanishes is as many less as
// there is time for.
TEST(Price, FollowsWhatABitIsWorth) {
  const auto bits_with = [](double factor) {
    const auto schedule = make("price 3:8 budget=0.63", kSteps, {});
    const auto loss = [&](std::int64_t step, int bits) {
      return 10 - static_cast<double>(step) * 1e-3 + std::ldexp(step < 250 ? 1.0 : factor, -2 * bits);
    };
    return play(*schedule, kSteps, loss).bits;
  };
  const std::vector<Bits> same = bits_with(1), more = bits_with(64), less = bits_with(1.0 / 64);
  EXPECT_EQ(same[250].forward, same[50].forward);
  EXPECT_EQ(same[350].forward, same[50].forward);
  EXPECT_EQ(more[250].forward, same[250].forward) << "nothing is known yet";
  EXPECT_EQ(more[350].forward, same[250].forward + 1);
  EXPECT_EQ(more[450].forward, same[250].forward + 2);
  // What was heard before is forgotten by a quarter a probe.
  EXPECT_EQ(less[350].forward, same[250].forward);
  EXPECT_LT(less[750].forward, same[750].forward);
}

// A loss that no longer falls makes more training worth nothing, and a bit worth its price.
TEST(Price, RaisesBitsWhereProgressEnds) {
  const auto bits_after = [](double speed_later) {
    const auto schedule = make("price 3:8 budget=0.63", kSteps, {});
    const auto loss = [&](std::int64_t step, int bits) {
      const auto t = static_cast<double>(step);
      return 10 - 1e-3 * std::min(t, 400.0) - speed_later * std::max(t - 400, 0.0) +
             std::ldexp(1.0, -2 * bits);
    };
    int sum = 0;
    const std::vector<Bits> bits = play(*schedule, kSteps, loss).bits;
    for (std::size_t step = 600; step < 1000; ++step) sum += bits[step].forward;
    return sum;
  };
  EXPECT_GT(bits_after(0.0), bits_after(1e-3));
}

TEST(Price, ProbesTheTwoHighestBitsAtTheTop) {
  const auto schedule = make("price 3:8 every=500 budget=1");
  EXPECT_EQ(schedule->at(0).forward, 8);
  EXPECT_EQ(schedule->probe_after(498), std::nullopt);
  EXPECT_EQ(schedule->probe_after(499), (Probe{{7, 8}, {8, 8}}));
}

TEST(Price, WithADelayAndATailAsksBetweenThem) {
  const auto schedule = make("delayed 100 at=8 price 3:8 every=200 budget=0.63 then 8 last=100");
  std::vector<std::int64_t> asked;
  std::int64_t cost = 0;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    cost += step_cost(schedule->at(step));
    if (const auto probe = schedule->probe_after(step)) {
      asked.push_back(step);
      cost += probe->coarse.forward * probe->coarse.forward + probe->fine.forward * probe->fine.forward;
      schedule->observe_probe({1.0, 0.9});
    }
  }
  EXPECT_EQ(asked, (std::vector<std::int64_t>{299, 499, 699, 899, 1099, 1299, 1499}));
  const auto left = std::llround(0.63 * kSteps * step_cost({8, 8})) - cost;
  EXPECT_TRUE(left >= 0 && left < 31) << left;
  EXPECT_EQ(schedule->at(0).forward, 8);
  EXPECT_EQ(schedule->at(kSteps - 1).forward, 8);
}

TEST(Price, RestoredAtAnyProbeGoesOnAsIfUninterrupted) {
  const std::string text = "price 3:8 every=50 budget=0.63";
  for (const bool wild : {false, true}) {
    const Training training;
    const auto loss = [&](std::int64_t step, int bits) {
      return wild ? wild_loss(step, bits, 7) : training.loss(step, bits);
    };
    const auto whole = make(text);
    const Played all = play(*whole, kSteps, loss);
    for (const std::int64_t stop : {1, 49, 50, 51, 777, 1850, 1999}) {
      const auto first = make(text), second = make(text);
      play(*first, stop, loss);
      second->restore(Json::parse(first->state().dump()));  // through text, as a checkpoint does
      const Played rest = play(*second, kSteps, loss, stop);
      EXPECT_EQ(std::vector<Bits>(all.bits.begin() + stop, all.bits.end()), rest.bits) << stop;
      EXPECT_EQ(second->state().dump(), whole->state().dump()) << stop;
    }
  }
}

TEST(Price, RefusesForeignOrDamagedState) {
  const auto schedule = make("price 3:8 every=500 budget=0.63");
  for (const char* state :
       {"{}", "[]", "null", R"({"heard":3})", R"({"heard":[1]})", R"({"heard":[[1]]})",
        R"({"heard":[["x",1]]})", R"({"heard":[[1,2,3]]})", R"({"heard":[[1,2],[1,2],[1,2]]})"}) {
    EXPECT_NE(error_of([&] { schedule->restore(Json::parse(state)); }), "") << state;
  }
}

TEST(Price, IsPlannedAsMatchedBeforeItRuns) {
  const auto schedule = make("price 3:8 budget=0.63");
  EXPECT_LT(schedule->at(150).forward, schedule->at(1950).forward) << "high where the learning rate is low";
  EXPECT_TRUE(schedule->is_stateful());
  EXPECT_FALSE(schedule->hears_losses());
}

TEST(Price, SaysWhatItCannotDo) {
  const auto refusal = [](const std::string& text, std::int64_t steps = kSteps) {
    return error_of([&] { make(text, steps); });
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(refusal("price 3:8"), "price needs budget=SHARE"));
  EXPECT_TRUE(has(refusal("price 5 budget=0.5"), "leaves it no choice"));
  EXPECT_TRUE(has(refusal("price 3:8 budget=0.5 every=1"), "at least 2"));
  EXPECT_TRUE(has(refusal("price 3:8 budget=0.5 every=501"), "at most 500"));
  EXPECT_TRUE(has(refusal("price 3:8 budget=0.5 grad=6:8"), "one number of gradient bits"));
  EXPECT_TRUE(has(refusal("price 3:8 budget=0.5 grad=(LR 6:8 n=1)"), "one number of gradient bits"));
  EXPECT_TRUE(has(refusal("static 8 grad=(price 3:8)"), "known beforehand"));
  // 18 probes of 9 + 16 on top of 2000 · 57, of 2000 · 192.
  EXPECT_TRUE(has(refusal("price 3:8 budget=0.29"), "possible is 0.2981 to 1.0011"));
  EXPECT_EQ(refusal("price 3:8 budget=0.2982"), "");
}

}  // namespace
}  // namespace lowtide
