#include "lowtide/schedule/waterfill.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/schedule/error_of.h"

namespace lowtide {
namespace {

constexpr std::int64_t kSteps = 2000;
using LayerBits = std::vector<std::uint8_t>;

double cosine_rate(std::int64_t step) {
  return 0.5 * (1 + std::cos(M_PI * static_cast<double>(step) / static_cast<double>(kSteps)));
}

// A small network: five layers to choose for, and one with a rule of its own.
const std::vector<LayerSize> kLayers{{442368, true},  {2359296, true}, {131072, true},
                                     {1179648, true}, {640, false},    {92160, true}};

std::int64_t macs_of(const std::vector<LayerSize>& layers) {
  std::int64_t sum = 0;
  for (const LayerSize& layer : layers) sum += layer.macs;
  return sum;
}

std::unique_ptr<Schedule> make(const std::string& text, std::int64_t steps = kSteps,
                               const Rates& rates = cosine_rate,
                               const std::vector<LayerSize>& layers = kLayers) {
  return make_schedule(parse_schedule(text), steps, rates, layers);
}

struct Played {
  std::vector<LayerBits> bits;
  std::vector<std::int64_t> looks;
  std::int64_t cost = 0;  // of a step's MACs, as the papers count
};

// `hear` tells the sensitivities of all layers after a step.
template <typename Hear>
Played play(Schedule& schedule, std::int64_t steps, Hear&& hear, std::int64_t from = 0,
            const std::vector<LayerSize>& layers = kLayers) {
  Played played;
  for (std::int64_t step = from; step < steps; ++step) {
    const Bits bits = schedule.at(step);
    LayerBits of_layers = schedule.layers_at(step);
    if (of_layers.empty()) of_layers.assign(layers.size(), static_cast<std::uint8_t>(bits.forward));
    for (std::size_t i = 0; i < layers.size(); ++i)
      played.cost += layers[i].macs * step_cost({of_layers[i], bits.backward});
    played.bits.push_back(of_layers);
    if (schedule.looks_at(step)) {
      played.looks.push_back(step);
      schedule.observe_layers(hear(step));
    }
  }
  return played;
}

// As of a training whose gradients do not change: by the rate of the step.
std::vector<double> steady(std::int64_t step, const std::vector<double>& sensitivity) {
  std::vector<double> result;
  for (const double of_layer : sensitivity) result.push_back(of_layer / cosine_rate(step));
  return result;
}

// Whatever is heard, also such as no training tells.
std::vector<double> wild(std::int64_t step, std::uint64_t seed, std::size_t layers) {
  std::vector<double> result;
  for (std::size_t i = 0; i < layers; ++i) {
    std::uint64_t x = seed * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(step) * 31 + i;
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    result.push_back(x % 97 == 0   ? std::nan("")
                     : x % 97 == 1 ? std::numeric_limits<double>::infinity()
                     : x % 7 == 0  ? 0
                                   : std::exp(static_cast<double>(x % 4000) / 100 - 20));
  }
  return result;
}

// No other bits that cost as much or less do less harm.
TEST(WaterLevel, IsTheBestAtItsCostByBruteForce) {
  const BitRange range{3, 7};
  const WaterLevel water(range, 8);
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const std::vector<double> sensitivity = wild(3, 1000 + seed, 4);
    std::vector<Demand> demands;
    std::int64_t macs = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const auto of_layer = static_cast<std::int64_t>(1 + (seed * (i + 3)) % 17);
      macs += of_layer;
      const double s = std::isfinite(sensitivity[i]) ? sensitivity[i] : 1;
      demands.push_back({std::log2(s / static_cast<double>(of_layer)), of_layer});
    }
    const auto harm = [&](std::size_t i, int bits) {
      const double step = 1 / (std::exp2(bits) - 1);  // of the range
      return std::exp2(demands[i].log_worth) * step * step * static_cast<double>(demands[i].macs);
    };
    for (const double share : {0.3, 0.42, 0.63, 0.8, 1.0}) {
      const auto budget = static_cast<std::int64_t>(share * static_cast<double>(macs * step_cost({7, 8})));
      if (budget < macs * step_cost({3, 8})) continue;
      const double price = water.log_price(demands, budget);
      double ours = 0;
      const std::int64_t spent = water.cost(demands, price);
      for (std::size_t i = 0; i < 4; ++i) ours += harm(i, water.bits(demands[i].log_worth, price));
      EXPECT_LE(spent, budget);
      int bits[4];
      for (int code = 0; code < 5 * 5 * 5 * 5; ++code) {
        std::int64_t cost = 0;
        double other = 0;
        for (std::size_t i = 0, rest = static_cast<std::size_t>(code); i < 4; ++i, rest /= 5) {
          bits[i] = 3 + static_cast<int>(rest % 5);
          cost += demands[i].macs * step_cost({bits[i], 8});
          other += harm(i, bits[i]);
        }
        const double least = cost <= spent ? ours * (1 - 1e-12) : 0;
        EXPECT_GE(other, least) << seed << " " << share;
      }
    }
  }
}

TEST(WaterLevel, OfOneDemandIsTheMostItCanBuy) {
  const WaterLevel water({3, 8}, 8);
  for (int bits = 3; bits <= 8; ++bits) {
    const std::vector<Demand> one{{5.0, 10}};
    EXPECT_EQ(water.bits(5.0, water.log_price(one, 10 * step_cost({bits, 8}))), bits);
    const std::int64_t too_little = 10 * step_cost({bits, 8}) - 1;
    EXPECT_EQ(water.bits(5.0, water.log_price(one, too_little)), std::max(3, bits - 1));
  }
}

// What raising a layer by a bit costs in one of the steps from `begin` on, at the least; 1 where nothing can be raised.
std::int64_t cheapest_raise(const Played& played, std::int64_t begin, const ScheduleSpec& spec,
                            const std::vector<LayerSize>& layers = kLayers) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (auto step = static_cast<std::size_t>(begin); step < played.bits.size(); ++step) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const int bits = played.bits[step][i], grad = spec.grad.high;
      if (!layers[i].is_chosen || bits == spec.bits.high) continue;
      least = std::min(least, layers[i].macs * (step_cost({bits + 1, grad}) - step_cost({bits, grad})));
    }
  }
  return least == std::numeric_limits<std::int64_t>::max() ? 1 : least;
}

std::int64_t budget_of(const ScheduleSpec& spec, std::int64_t steps, const std::vector<LayerSize>& layers) {
  const double of_a_mac =
      *spec.budget * static_cast<double>(steps) * static_cast<double>(step_cost(spec.highest()));
  return static_cast<std::int64_t>(std::floor(of_a_mac * (1 + 1e-12))) * macs_of(layers);
}

// Never above the budget; below it by less than one more bit would cost in one of the last interval's steps.
TEST(Waterfill, MeetsTheBudgetWhateverItHears) {
  for (const std::int64_t steps : {8, 400, 437, 2000}) {
    for (const char* line :
         {"waterfill 3:8 every=2 budget={}", "waterfill 5:6 grad=4 every=2 budget={}",
          "waterfill 3:8 every=100 budget={}", "waterfill 2:16 grad=8 every=50 budget={}"}) {
      for (const double share : {0.42, 0.63, 0.82, 1.0}) {
        const std::string text = fmt::format(fmt::runtime(line), share);
        const ScheduleSpec spec = parse_schedule(text);
        if (spec.every > steps / 4 || error_of([&] { make(text, steps); }) != "") continue;
        for (std::uint64_t seed = 0; seed < (steps > 1000 ? 2 : 8); ++seed) {
          SCOPED_TRACE(fmt::format("{} over {} steps, seed {}", text, steps, seed));
          const auto schedule = make(text, steps, seed % 2 == 0 ? Rates(cosine_rate) : Rates());
          const Played played =
              play(*schedule, steps, [&](auto step) { return wild(step, seed, kLayers.size()); });
          EXPECT_EQ(played.looks.size(), static_cast<std::size_t>(steps / spec.every - 1));
          const std::int64_t budget = budget_of(spec, steps, kLayers);
          EXPECT_LE(played.cost, budget);
          EXPECT_LT(budget - played.cost,
                    cheapest_raise(played, steps / spec.every * spec.every - spec.every, spec));
        }
      }
    }
  }
}

// Layers that nothing is chosen for may cost twenty times as much as the others: one bit of theirs is more than all that
// the others can have in a step.
TEST(Waterfill, MeetsTheBudgetWhereOtherLayersCostTheMost) {
  const std::vector<LayerSize> layers{{1000, true}, {30000, false}, {500, true}};
  for (const char* line : {"waterfill 3:8 every=100 budget={}", "waterfill 3:8 every=7 budget={}",
                           "waterfill 2:16 every=50 budget={}", "waterfill 5:6 grad=4 every=40 budget={}"}) {
    for (const double share : {0.35, 0.42, 0.63, 0.82, 0.95, 1.0}) {
      const std::string text = fmt::format(fmt::runtime(line), share);
      const ScheduleSpec spec = parse_schedule(text);
      if (error_of([&] { make(text, kSteps); }) != "") continue;
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        SCOPED_TRACE(fmt::format("{}, seed {}", text, seed));
        const auto schedule = make(text, kSteps, seed % 2 == 0 ? Rates(cosine_rate) : Rates(), layers);
        const Played played = play(
            *schedule, kSteps, [&](auto step) { return wild(step, seed, layers.size()); }, 0, layers);
        const std::int64_t budget = budget_of(spec, kSteps, layers);
        EXPECT_LE(played.cost, budget);
        const std::int64_t begin = (kSteps / spec.every - 1) * spec.every;
        EXPECT_LT(budget - played.cost, cheapest_raise(played, begin, spec, layers));
      }
    }
  }
  // 20 · 31 bit operations for the dearest bit, and 135 in a step of the others: it takes five steps.
  const auto refusal = [&](const char* text) {
    return error_of([&] { make(text, kSteps, cosine_rate, layers); });
  };
  EXPECT_NE(refusal("waterfill 3:8 every=4 budget=0.63").find("expected every=5 or more"), std::string::npos);
  EXPECT_EQ(refusal("waterfill 3:8 every=5 budget=0.63"), "");
}

TEST(Waterfill, ALayerThatNeverMultipliesChangesNothing) {
  const std::vector<LayerSize> without{{1000, true}, {500, true}}, with{{1000, true}, {0, true}, {500, true}};
  const auto a = make("waterfill 3:8 budget=0.63", kSteps, cosine_rate, without),
             b = make("waterfill 3:8 budget=0.63", kSteps, cosine_rate, with);
  const Played alone = play(
                   *a, kSteps,
                   [](auto step) {
                     return steady(step, {1e3, 1e2});
                   },
                   0, without),
               beside = play(
                   *b, kSteps,
                   [](auto step) {
                     return steady(step, {1e3, 0, 1e2});
                   },
                   0, with);
  EXPECT_EQ(alone.cost, beside.cost);
  for (std::size_t step = 0; step < alone.bits.size(); ++step)
    EXPECT_EQ(alone.bits[step], (LayerBits{beside.bits[step][0], beside.bits[step][2]})) << step;
}

// By hand: a bit from b on is bought where s·4^-b·0.75 is worth λ·(2·b + 17). A layer 64 times as sensitive buys log4(64) = 3
// bits more, less log4(33 / 27) = 0.14 for their cost, at 5 and 8 bits: so two or three.
TEST(Waterfill, GivesBitsToTheSensitive) {
  const std::vector<LayerSize> two{{1000, true}, {1000, true}};
  const auto schedule = make("waterfill 2:12 budget=0.4", kSteps, {}, two);
  const Played played = play(
      *schedule, kSteps,
      [](auto) {
        return std::vector<double>{1.0, 64.0};
      },
      0, two);
  EXPECT_EQ(played.bits[0][0], played.bits[0][1]) << "nothing is known yet";
  for (const std::size_t step : {150u, 950u, 1850u}) {
    EXPECT_GE(played.bits[step][1] - played.bits[step][0], 2) << step;
    EXPECT_LE(played.bits[step][1] - played.bits[step][0], 3) << step;
  }
}

TEST(Waterfill, HasMoreBitsWhereTheLearningRateIsLow) {
  const auto schedule = make("waterfill 3:8 budget=0.63");
  const Played played = play(*schedule, kSteps, [](auto step) {
    return steady(step, {1e3, 1e3, 1e2, 1e3, 0, 1e2});
  });
  for (std::size_t layer = 0; layer < kLayers.size(); ++layer)
    EXPECT_LT(played.bits[150][layer], played.bits[1850][layer]) << layer;
  // What is heard follows the rate as foreseen: each layer climbs, and nothing is taken back.
  for (std::size_t step = 200; step < 1900; ++step) {
    for (const std::size_t layer : {0u, 1u, 2u, 3u, 5u})
      EXPECT_GE(played.bits[step][layer], played.bits[step - 1][layer]);
  }
}

TEST(Waterfill, ChangesBitsForAGainAlone) {
  // Sensitivities that waver by a tenth around their mean.
  const auto schedule = make("waterfill 3:8 every=50 budget=0.63", kSteps, {});
  const Played played = play(*schedule, kSteps, [](auto step) {
    std::vector<double> s{4e4, 9e5, 2e3, 3e5, 0, 1e4};
    for (std::size_t i = 0; i < s.size(); ++i)
      s[i] *= (step / 50 + static_cast<std::int64_t>(i)) % 2 == 0 ? 1.1 : 0.9;
    return s;
  });
  int changes = 0;
  for (std::size_t step = 100; step < 1900; ++step) {
    for (std::size_t layer = 0; layer < kLayers.size(); ++layer)
      changes += played.bits[step][layer] != played.bits[step - 1][layer] ? 1 : 0;
  }
  EXPECT_LE(changes, 12) << "of 36 decisions on five layers";
}

TEST(Waterfill, BetweenADelayAndATailDecidesForTheStepsBetween) {
  const auto schedule = make("delayed 100 at=8 waterfill 3:8 every=200 budget=0.63 then 8 last=100");
  const Played played = play(*schedule, kSteps, [](auto step) {
    return steady(step, {1e4, 1e5, 1e3, 1e5, 0, 1e3});
  });
  EXPECT_EQ(played.looks, (std::vector<std::int64_t>{299, 499, 699, 899, 1099, 1299, 1499, 1699}));
  const std::int64_t left = std::llround(0.63 * kSteps * step_cost({8, 8})) * macs_of(kLayers) - played.cost;
  EXPECT_TRUE(left >= 0 && left < 31 * 92160) << left;
  EXPECT_TRUE(schedule->layers_at(0).empty() && schedule->layers_at(kSteps - 1).empty());
  EXPECT_EQ(played.bits[0], LayerBits(kLayers.size(), 8));
}

TEST(Waterfill, RestoredAtAnyStepGoesOnAsIfUninterrupted) {
  const std::string text = "waterfill 3:8 every=50 budget=0.63";
  for (const bool is_wild : {false, true}) {
    const auto hear = [&](std::int64_t step) {
      return is_wild ? wild(step, 7, kLayers.size()) : steady(step, {1e4, 1e5, 1e3, 1e5, 0, 1e3});
    };
    const auto whole = make(text);
    const Played all = play(*whole, kSteps, hear);
    for (const std::int64_t stop : {1, 49, 50, 51, 777, 1850, 1949, 1950, 1951, 1999}) {
      const auto first = make(text), second = make(text);
      play(*first, stop, hear);
      second->restore(Json::parse(first->state().dump()));  // through text, as a checkpoint does
      const Played rest = play(*second, kSteps, hear, stop);
      EXPECT_EQ(std::vector<LayerBits>(all.bits.begin() + stop, all.bits.end()), rest.bits) << stop;
      EXPECT_EQ(second->state().dump(), whole->state().dump()) << stop;
    }
  }
}

TEST(Waterfill, RefusesForeignOrDamagedState) {
  const auto schedule = make("waterfill 3:8 every=500 budget=0.63");
  const Json sound = schedule->state();
  schedule->restore(sound);
  for (const char* change :
       {R"({"looks":3})", R"({"looks":-1})", R"({"looks":9})", R"({"looks":"1"})", R"({"left":1})",
        R"({"left":null})", R"({"sensitivity":[1]})", R"({"sensitivity":[1,1,1,1,-1],"weight":1})",
        R"({"weight":-1})", R"({"bits":[]})", R"({"bits":[5,5,5,5,9]})", R"({"bits":[5,5,5,5]})"}) {
    Json state = sound;
    state.update(Json::parse(change));
    EXPECT_NE(error_of([&] { schedule->restore(state); }), "") << change;
  }
  for (const char* state : {"{}", "[]", "null"})
    EXPECT_NE(error_of([&] { schedule->restore(Json::parse(state)); }), "") << state;
}

TEST(Waterfill, WithoutANetworkIsPlannedAsMatched) {
  const auto schedule = make("waterfill 3:8 budget=0.63", kSteps, cosine_rate, {});
  EXPECT_LT(schedule->at(150).forward, schedule->at(1950).forward);
  EXPECT_TRUE(schedule->layers_at(0).empty());
  EXPECT_TRUE(schedule->is_stateful());
}

TEST(Waterfill, SaysWhatItCannotDo) {
  const auto refusal = [](const std::string& text, const std::vector<LayerSize>& layers = kLayers) {
    return error_of([&] { make(text, kSteps, cosine_rate, layers); });
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(refusal("waterfill 3:8"), "waterfill needs budget=SHARE"));
  EXPECT_TRUE(has(refusal("waterfill 5 budget=0.5"), "leaves it no choice"));
  EXPECT_TRUE(has(refusal("waterfill 3:8 budget=0.5 every=501"), "at most 500"));
  EXPECT_TRUE(has(refusal("waterfill 3:8 budget=0.5 grad=6:8"), "one number of gradient bits"));
  EXPECT_TRUE(has(refusal("static 8 grad=(waterfill 3:8)"), "known beforehand"));
  // 57 and 192 bit operations a MAC.
  EXPECT_TRUE(has(refusal("waterfill 3:8 budget=0.29"), "possible is 0.2969 to 1.0000"));
  EXPECT_EQ(refusal("waterfill 3:8 budget=0.2969"), "");
  EXPECT_TRUE(
      has(refusal("waterfill 3:8 budget=0.5", {{640, false}}), "this network has none without a rule"));
  EXPECT_TRUE(has(refusal("waterfill 3:8 budget=0.5", {{std::int64_t{1} << 48, true}}),
                  "more than waterfill can count"));
}

TEST(Table, WithBitsOfLayersTellsThemOfEachStep) {
  const auto text = [](const char* of) { return to_string(parse_schedule(of)); };
  EXPECT_EQ(text("table 5[4/6/5]x10 5[4/6/5]x2 5[4/6/6]x3"), "table 5[4/6/5]x12 5[4/6/6]x3 grad=8");
  const ScheduleSpec spec = parse_schedule("table 5[4/6/5]x10 7[8/3/7]x5");
  EXPECT_EQ(spec.bits.low, 3);
  EXPECT_EQ(spec.bits.high, 8);
  const auto schedule = make_schedule(spec, 15, {}, {{10, true}, {10, true}, {5, false}});
  EXPECT_EQ(schedule->at(9).forward, 5);
  EXPECT_EQ(schedule->layers_at(9), (LayerBits{4, 6, 5}));
  EXPECT_EQ(schedule->layers_at(10), (LayerBits{8, 3, 7}));
  EXPECT_EQ(schedule->same_until(0), 10);
  EXPECT_NE(error_of([&] {
              make_schedule(spec, 15, {}, {{10, true}});
            }).find("bits of 3 layers, and the network has 1"),
            std::string::npos);
  for (const char* wrong :
       {"table 5[4/6x10", "table 5[]x10", "table 5[4/99]x10", "table 5[4]x10 5x3", "table [4]x10"})
    EXPECT_NE(error_of([&] { parse_schedule(wrong); }), "") << wrong;
}

}  // namespace
}  // namespace lowtide
