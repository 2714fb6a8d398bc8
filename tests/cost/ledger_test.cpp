#include "lowtide/cost/ledger.h"

#include <gtest/gtest.h>

#include "tests/schedule/error_of.h"

namespace lowtide {
namespace {

constexpr LayerPrecision kFixed8{LayerPrecision::Kind::kFixed, 8};
constexpr LayerPrecision kFp32{LayerPrecision::Kind::kFp32, 0};

Ledger three_layers() {
  Ledger ledger;
  ledger.add_layer("conv1", 100, kFixed8);
  ledger.add_layer("conv2", 1000);
  ledger.add_layer("fc", 10, kFp32);
  return ledger;
}

TEST(Ledger, ByHand) {
  Ledger ledger = three_layers();
  ledger.add({3, 6}, 2);
  ledger.add({4, 6}, 5);
  ledger.add({3, 6}, 1);
  EXPECT_EQ(ledger.items(), 8);
  const auto& layers = ledger.layers();
  // 3 items at 3/6 bits and 5 at 4/6.
  EXPECT_EQ(ledger.paper(layers[1]),
            (BitOperations{1000 * (3 * 9 + 5 * 16), 1000 * (3 * 18 + 5 * 24), 1000 * (3 * 18 + 5 * 24)}));
  EXPECT_EQ(ledger.actual(layers[1]), ledger.paper(layers[1]));
  // The first layer keeps 8 forward bits, its gradients stay as scheduled.
  EXPECT_EQ(ledger.actual(layers[0]), (BitOperations{100 * 8 * 64, 100 * 8 * 48, 100 * 8 * 48}));
  EXPECT_EQ(ledger.actual(layers[2]), (BitOperations{10 * 8 * 1024, 10 * 8 * 1024, 10 * 8 * 1024}));
  EXPECT_TRUE(ledger.paper().total() == 1110u * (3 * 45 + 5 * 64));
  EXPECT_TRUE(ledger.actual().total() == 1000u * (3 * 45 + 5 * 64) + 100u * 8 * 160 + 10u * 8 * 3072);
}

// A layer with a rule counts in the papers' figure at the bits it is told with.
TEST(Ledger, LayersMayHaveBitsOfTheirOwnInAStep) {
  Ledger ledger = three_layers();
  ledger.add({5, 8}, {5, 4, 5}, 2, {});
  ledger.add({5, 8}, {5, 6, 5}, 1, {100, 1000, 10});
  ledger.add({5, 8}, 1);
  EXPECT_EQ(ledger.items(), 4);
  EXPECT_TRUE(ledger.macs() == 4 * 1110u);
  const auto cost = [](int bits) { return static_cast<Count>(step_cost({bits, 8})); };
  EXPECT_TRUE(ledger.paper().total() == 1000 * (2 * cost(4) + cost(6) + cost(5)) + 4 * 110 * cost(5));
  EXPECT_TRUE(ledger.actual(ledger.layers()[1]).total() == 1000 * (2 * cost(4) + cost(6) + cost(5)));
  EXPECT_TRUE(ledger.actual(ledger.layers()[0]).total() == 4 * 100 * cost(8));
  Ledger restored = three_layers();
  restored.restore(Json::parse(ledger.state().dump()));
  EXPECT_EQ(restored.state().dump(), ledger.state().dump());
  EXPECT_EQ(restored.paper(), ledger.paper());
}

// 5 bits are 25 bit operations a MAC, forward alone; of a layer with bits of its own 64 and 1024.
TEST(Ledger, ProbesAreForwardPassesAndNoSteps) {
  Ledger ledger = three_layers();
  ledger.add({4, 8}, 2);
  const Count before = ledger.paper().total();
  const Json without = ledger.state();
  ledger.add_probe(5, {100, 1000, 10});
  ledger.add_probe(5, {100, 1000, 10});
  EXPECT_EQ(ledger.items(), 2);
  EXPECT_TRUE(ledger.macs() == 2 * 1110u);
  EXPECT_TRUE(ledger.paper().total() == before + 2 * 25 * 1110u);
  EXPECT_TRUE(ledger.paper_of_probes() == 2 * 25 * 1110u);
  EXPECT_TRUE(ledger.actual_of_probes() == 2 * (100 * 64 + 1000 * 25 + 10 * 1024u));
  EXPECT_EQ(ledger.to_json().at("probes").at("paper"), 2 * 25 * 1110);
  EXPECT_NE(ledger.format_table().find("of probes"), std::string::npos);
  Ledger restored = three_layers();
  restored.restore(Json::parse(ledger.state().dump()));
  EXPECT_EQ(restored.state().dump(), ledger.state().dump());
  EXPECT_EQ(restored.actual(), ledger.actual());
  EXPECT_FALSE(without.contains("probes")) << "the bytes of a run without them";
  restored.restore(without);
  EXPECT_TRUE(restored.paper_of_probes() == 0u);
  for (const char* probes : {"3", R"([[5]])", R"([[5,[1,2]]])", R"([[5,[1,2,-3]]])",
                             R"([[5,[1,2,3]],[5,[1,2,3]]])", R"([[5.5,[1,2,3]]])"}) {
    Json damaged = without;
    damaged["probes"] = Json::parse(probes);
    EXPECT_NE(error_of([&] { ledger.restore(damaged); }).find("damaged"), std::string::npos) << probes;
  }
}

TEST(Ledger, AStepInFp32CountsThirtyTwoBitsEverywhere) {
  Ledger ledger = three_layers();
  ledger.add({}, 1);
  EXPECT_EQ(ledger.paper(), ledger.actual());
  EXPECT_TRUE(ledger.paper().total() == 1110u * 3072);
}

TEST(Ledger, IsExactBeyond64Bits) {
  Ledger ledger;
  ledger.add_layer("resnet50", 4'089'184'256);
  for (int step = 0; step < 1000; ++step) ledger.add({32, 32}, 450 * 256);
  // 4089184256 · 450000·256 · 3072: more than 2^63 and than 2^64.
  EXPECT_EQ(to_decimal(ledger.paper().total()), "1447139408766566400000");
  EXPECT_EQ(ledger.to_json()["paper"]["total"], "1447139408766566400000");
  EXPECT_NEAR(ledger.to_json()["gbitops"]["paper"].get<double>(), 1447139408766.5664, 1e-3);
}

TEST(Ledger, JsonNumbersStayExact) {
  EXPECT_EQ(exact_json(Count{1} << 53), std::uint64_t{1} << 53);
  EXPECT_EQ(exact_json((Count{1} << 53) + 1), "9007199254740993");
  EXPECT_EQ(to_decimal(0), "0");
  EXPECT_EQ(to_decimal(~Count{0}), "340282366920938463463374607431768211455");
}

TEST(Ledger, RestoredGoesOnAsIfUninterrupted) {
  Ledger whole = three_layers();
  Ledger first = three_layers();
  for (int step = 0; step < 10; ++step) {
    whole.add({3 + step % 4, 8}, 128);
    if (step < 6) first.add({3 + step % 4, 8}, 128);
  }
  Ledger resumed = three_layers();
  resumed.restore(Json::parse(first.state().dump()));
  for (int step = 6; step < 10; ++step) resumed.add({3 + step % 4, 8}, 128);
  EXPECT_EQ(resumed.state().dump(), whole.state().dump());
  EXPECT_EQ(resumed.to_json().dump(), whole.to_json().dump());
}

// A program that calls the same layers in another order goes on all the same.
TEST(Ledger, IsMadeOfWhatWasSavedAlone) {
  Ledger ledger;
  ledger.add_layer("conv1", 1000, parse_layer_precision("fp32"));
  ledger.add_layer("conv2", 2000, parse_layer_precision("6"));
  ledger.add({8, 8}, 3);
  ledger.add({4, 8}, 1, {900, 2100});
  const Ledger made = Ledger::from_state(Json::parse(ledger.state().dump()));
  EXPECT_EQ(made.layers(), ledger.layers());
  EXPECT_EQ(made.actual(), ledger.actual());
  EXPECT_THROW(Ledger::from_state({{"layers", {{"conv1", -1, "fp32"}}}, {"items", Json::array()}}),
               UserError);
  EXPECT_THROW(Ledger::from_state(Json::object()), UserError);
}

TEST(Ledger, IsRestoredWhateverTheOrderOfItsLayers) {
  Ledger saved, restored;
  for (const char* name : {"conv1", "shortcut", "conv2"}) saved.add_layer(name, name[0]);
  for (const char* name : {"conv1", "conv2", "shortcut"}) restored.add_layer(name, name[0]);
  saved.add({3, 8}, 2, {10, 20, 30});
  saved.add({8, 8}, 5);
  restored.restore(Json::parse(saved.state().dump()));
  Ledger expected;
  for (const char* name : {"conv1", "conv2", "shortcut"}) expected.add_layer(name, name[0]);
  expected.add({3, 8}, 2, {10, 30, 20});
  expected.add({8, 8}, 5);
  EXPECT_EQ(restored.state().dump(), expected.state().dump());
}

TEST(Ledger, RefusesTheStateOfAnotherModelAndDamage) {
  Ledger ledger = three_layers();
  ledger.add({3, 8}, 1);
  Ledger other;
  other.add_layer("conv1", 100);
  EXPECT_NE(error_of([&] { ledger.restore(other.state()); }).find("other layers"), std::string::npos);
  Json damaged = ledger.state();
  damaged["items"][0][2] = -1;
  EXPECT_NE(error_of([&] { ledger.restore(damaged); }).find("damaged"), std::string::npos);
  damaged["items"] = {"x"};
  EXPECT_NE(error_of([&] { ledger.restore(damaged); }).find("damaged"), std::string::npos);
  EXPECT_NE(error_of([&] { ledger.restore(Json()); }).find("damaged"), std::string::npos);
  EXPECT_EQ(ledger.items(), 1) << "a refused state changes nothing";
}

TEST(Ledger, TableIsAligned) {
  Ledger ledger = three_layers();
  ledger.add({3, 8}, 1'000'000);
  const std::string table = ledger.format_table();
  EXPECT_NE(table.find("conv2"), std::string::npos);
  EXPECT_NE(table.find("1,000"), std::string::npos);
  std::size_t length = 0;
  for (std::size_t at = 0; at < table.size(); at = table.find('\n', at) + 1) {
    const std::size_t line = table.find('\n', at) - at;
    if (length == 0) length = line;
    EXPECT_EQ(line, length);
  }
}

}  // namespace
}  // namespace lowtide
