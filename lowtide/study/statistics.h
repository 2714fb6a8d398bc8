#pragma once

#include <optional>
#include <span>
#include <vector>

namespace lowtide {

double mean(std::span<const double> values);
// With n - 1 in the denominator; nothing for fewer than two values.
std::optional<double> sample_deviation(std::span<const double> values);

struct Interval {
  double low = 0, high = 0;
};

// A correlation of pairs; nothing for fewer than three of them or where one side does not vary.
std::optional<double> pearson(std::span<const double> x, std::span<const double> y);
// Pearson's of the ranks; equal values share the mean of theirs.
std::optional<double> spearman(std::span<const double> x, std::span<const double> y);
std::vector<double> ranks(std::span<const double> values);

// 95 % intervals of a correlation by Fisher's z = atanh r, which is nearly normal. Its variance is 1 / (n -
// 3) for Pearson's; for Spearman's (1 + r^2 / 2) / (n - 3), after Bonett and Wright, Psychometrika 65 (2000),
// 23-28. Nothing below four pairs, nor for |r| = 1, where z is infinite.
std::optional<Interval> pearson_interval(double r, std::size_t pairs);
std::optional<Interval> spearman_interval(double r, std::size_t pairs);

// Student's t: P(T <= t), and the t at which it is p. Degrees of freedom need not be whole.
double student_cdf(double t, double degrees);
double student_quantile(double p, double degrees);

// A difference of means, with its 95 % interval and the two-sided p value of there being none.
struct TTest {
  double difference = 0;
  double degrees = 0;
  Interval interval;
  double p = 1;
};

// Mean of a[i] - b[i], for two or more pairs. Nothing where the differences do not vary: no noise to judge
// by.
std::optional<TTest> paired_t_test(std::span<const double> a, std::span<const double> b);
// Of independent samples with variances of their own (Welch, Biometrika 34 (1947), 28-35), two or more values
// each.
std::optional<TTest> welch_t_test(std::span<const double> a, std::span<const double> b);

// Several p values at once, so that the chance of any false alarm stays what it is for one (Holm,
// Scandinavian Journal of Statistics 6 (1979), 65-70). In the order given.
std::vector<double> holm(std::span<const double> p);

}  // namespace lowtide
