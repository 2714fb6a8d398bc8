#include "lowtide/study/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace lowtide {
namespace {

// Sums of some ten products in double precision.
constexpr double kTolerance = 1e-13;

// Anscombe, The American Statistician 27 (1973), 17-21.
const std::vector<double> kX{10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5};
const std::vector<double> kY1{8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68};
const std::vector<double> kY2{9.14, 8.14, 8.74, 8.77, 9.26, 8.10, 6.13, 3.10, 9.13, 7.26, 4.74};
const std::vector<double> kY3{7.46, 6.77, 12.74, 7.11, 7.81, 8.84, 6.08, 5.39, 8.15, 6.42, 5.73};
const std::vector<double> kX4{8, 8, 8, 8, 8, 8, 8, 19, 8, 8, 8};
const std::vector<double> kY4{6.58, 5.76, 7.71, 8.84, 8.47, 7.04, 5.25, 12.50, 5.56, 7.91, 6.89};

// Student, Biometrika 6 (1908), 1-25: hours of sleep gained by two drugs; R has it as `sleep`.
const std::vector<double> kSleep1{0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0};
const std::vector<double> kSleep2{1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4};

TEST(Statistics, MeanAndDeviationOfAnscombe) {
  EXPECT_NEAR(mean(kX), 9, kTolerance);
  EXPECT_NEAR(*sample_deviation(kX), std::sqrt(11), kTolerance);
  EXPECT_NEAR(*sample_deviation(kY1), std::sqrt(4.127269090909091), kTolerance);  // numpy
  EXPECT_FALSE(sample_deviation(std::vector{1.0}));
}

TEST(Statistics, PearsonOfAnscombesQuartet) {  // numpy.corrcoef
  EXPECT_NEAR(*pearson(kX, kY1), 0.81642051634484, kTolerance);
  EXPECT_NEAR(*pearson(kX, kY2), 0.8162365060002428, kTolerance);
  EXPECT_NEAR(*pearson(kX, kY3), 0.8162867394895984, kTolerance);
  EXPECT_NEAR(*pearson(kX4, kY4), 0.8165214368885028, kTolerance);
}

TEST(Statistics, SpearmanOfAnscombesQuartet) {  // R: cor(method = "spearman"); the fourth has ten ties
  EXPECT_NEAR(*spearman(kX, kY1), 9.0 / 11, kTolerance);
  EXPECT_NEAR(*spearman(kX, kY2), 0.690909090909091, kTolerance);
  EXPECT_NEAR(*spearman(kX, kY3), 0.990909090909091, kTolerance);
  EXPECT_NEAR(*spearman(kX4, kY4), 0.5, kTolerance);
}

TEST(Statistics, EqualValuesShareTheirRanks) {
  EXPECT_EQ(ranks(std::vector{5.0, 1.0, 5.0, 7.0, 5.0, 1.0}), (std::vector{4.0, 1.5, 4.0, 6.0, 4.0, 1.5}));
}

TEST(Statistics, NoCorrelationWhereASideDoesNotVaryOrPairsAreFew) {
  EXPECT_FALSE(pearson(std::vector{1.0, 1.0, 1.0}, std::vector{1.0, 2.0, 3.0}));
  EXPECT_FALSE(spearman(std::vector{1.0, 2.0, 3.0}, std::vector{2.0, 2.0, 2.0}));
  EXPECT_FALSE(pearson(std::vector{1.0, 2.0}, std::vector{1.0, 2.0}));
}

TEST(Statistics, FisherIntervalOfAnscombe) {
  // R: cor.test(anscombe$x1, anscombe$y1) gives 0.4243912 to 0.9506933, which is rounded at 5e-8.
  const auto linear = pearson_interval(0.81642051634484, 11);
  EXPECT_NEAR(linear->low, 0.4243912, 5e-8);
  EXPECT_NEAR(linear->high, 0.9506933, 5e-8);
  // tanh(atanh r ± 1.96 sqrt((1 + r² / 2) / 8)), by numpy.
  const auto rank = spearman_interval(9.0 / 11, 11);
  EXPECT_NEAR(rank->low, 0.3370204870698274, kTolerance);
  EXPECT_NEAR(rank->high, 0.9604636343630895, kTolerance);
}

TEST(Statistics, NoIntervalWhereThereIsNone) {
  EXPECT_FALSE(pearson_interval(0.5, 3));
  EXPECT_FALSE(pearson_interval(1.0, 10));
  EXPECT_FALSE(spearman_interval(-1.0, 10));
}

TEST(Statistics, StudentsCdfWhereItHasAClosedForm) {
  for (const double t : {-30.0, -2.5, -0.3, 0.0, 0.01, 1.0, 4.0, 100.0}) {
    EXPECT_NEAR(student_cdf(t, 1), 0.5 + std::atan(t) / std::numbers::pi, kTolerance) << t;
    EXPECT_NEAR(student_cdf(t, 2), 0.5 + t / (2 * std::sqrt(2 + t * t)), kTolerance) << t;
    const double u = 1 + t * t / 4;
    EXPECT_NEAR(student_cdf(t, 4), 0.5 + 0.375 * t / std::sqrt(u) * (1 - t * t / (12 * u)), kTolerance) << t;
  }
  // With many degrees of freedom it is the normal; the difference is of the order 1 / degrees.
  EXPECT_NEAR(student_cdf(1.5, 1e7), 0.5 * std::erfc(-1.5 / std::sqrt(2)), 1e-7);
}

TEST(Statistics, StudentsQuantilesAsInTables) {  // NIST/SEMATECH e-Handbook 1.3.6.7.2, rounded at 5e-4
  EXPECT_NEAR(student_quantile(0.975, 1), 12.706, 5e-4);
  EXPECT_NEAR(student_quantile(0.975, 2), 4.303, 5e-4);
  EXPECT_NEAR(student_quantile(0.975, 3), 3.182, 5e-4);
  EXPECT_NEAR(student_quantile(0.95, 7), 1.895, 5e-4);
  EXPECT_NEAR(student_quantile(0.999, 10), 4.144, 5e-4);
  EXPECT_NEAR(student_quantile(0.975, 100), 1.984, 5e-4);
  EXPECT_NEAR(student_quantile(0.025, 2), -4.303, 5e-4);
  EXPECT_NEAR(student_quantile(0.5, 5), 0, kTolerance);
}

TEST(Statistics, PairedTestOfStudentsSleep) {
  // R: t.test(Pair(extra1, extra2)): t = -4.0621, df = 9, p = 0.002833, -2.4598858 to -0.7001142.
  const auto test = paired_t_test(kSleep1, kSleep2);
  EXPECT_NEAR(test->difference, -1.58, kTolerance);
  EXPECT_EQ(test->degrees, 9);
  EXPECT_NEAR(test->p, 0.002833, 5e-7);
  EXPECT_NEAR(test->interval.low, -2.4598858, 5e-8);
  EXPECT_NEAR(test->interval.high, -0.7001142, 5e-8);
}

TEST(Statistics, WelchTestOfStudentsSleep) {
  // R: t.test(extra ~ group): t = -1.8608, df = 17.776, p = 0.07939, -3.3654832 to 0.2054832.
  const auto test = welch_t_test(kSleep1, kSleep2);
  EXPECT_NEAR(test->difference, -1.58, kTolerance);
  EXPECT_NEAR(test->degrees, 17.776, 5e-4);
  EXPECT_NEAR(test->p, 0.07939, 5e-6);
  EXPECT_NEAR(test->interval.low, -3.3654832, 5e-8);
  EXPECT_NEAR(test->interval.high, 0.2054832, 5e-8);
}

TEST(Statistics, NoTestWithoutNoise) {
  EXPECT_FALSE(paired_t_test(std::vector{0.5}, std::vector{0.4}));
  // The same difference three times, but for the rounding of doubles: that is no noise to judge by.
  EXPECT_FALSE(paired_t_test(std::vector{0.8912, 0.8850, 0.7012}, std::vector{0.8900, 0.8838, 0.7000}));
  EXPECT_FALSE(welch_t_test(std::vector{0.5}, std::vector{0.4, 0.3}));
}

TEST(Statistics, HolmByHand) {
  // Sorted 0.005, 0.01, 0.03, 0.04, times 4, 3, 2, 1, never falling.
  const std::vector<double> adjusted = holm(std::vector{0.01, 0.04, 0.03, 0.005});
  const std::vector<double> expected{0.03, 0.06, 0.06, 0.02};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(adjusted[i], expected[i], kTolerance);
  EXPECT_EQ(holm(std::vector{0.7, 0.9}), (std::vector{1.0, 1.0}));
  EXPECT_TRUE(holm({}).empty());
}

}  // namespace
}  // namespace lowtide
