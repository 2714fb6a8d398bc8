#include "lowtide/study/statistics.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

constexpr double kNormalQuantile975 = 1.959963984540054;

double sum_of_squares(std::span<const double> values) {
  const double center = mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - center) * (value - center);
  return sum;
}

// P(T > |t|): small where t is large, and exact there too.
double student_tail(double t, double degrees) {
  return cdf(complement(boost::math::students_t(degrees), std::abs(t)));
}

std::optional<Interval> fisher_interval(double r, std::size_t pairs, double numerator) {
  if (pairs < 4 || std::abs(r) >= 1) return std::nullopt;
  const double half = kNormalQuantile975 * std::sqrt(numerator / (static_cast<double>(pairs) - 3));
  return Interval{std::tanh(std::atanh(r) - half), std::tanh(std::atanh(r) + half)};
}

// `magnitude` is that of the values: their differences are rounded at some 1e-16 of it, which is no noise of
// theirs.
std::optional<TTest> t_test(double difference, double standard_error, double degrees, double magnitude) {
  if (!(standard_error > 1e-12 * magnitude)) return std::nullopt;
  const double half = student_quantile(0.975, degrees) * standard_error;
  return TTest{difference,
               degrees,
               {difference - half, difference + half},
               2 * student_tail(difference / standard_error, degrees)};
}

}  // namespace

double mean(std::span<const double> values) {
  LOWTIDE_CHECK(!values.empty(), "a mean of nothing");
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::optional<double> sample_deviation(std::span<const double> values) {
  if (values.size() < 2) return std::nullopt;
  return std::sqrt(sum_of_squares(values) / static_cast<double>(values.size() - 1));
}

std::optional<double> pearson(std::span<const double> x, std::span<const double> y) {
  LOWTIDE_CHECK(x.size() == y.size(), "pairs");
  if (x.size() < 3) return std::nullopt;
  const double x_squares = sum_of_squares(x), y_squares = sum_of_squares(y);
  if (!(x_squares > 0) || !(y_squares > 0)) return std::nullopt;
  double products = 0;
  for (std::size_t i = 0; i < x.size(); ++i) products += (x[i] - mean(x)) * (y[i] - mean(y));
  return std::clamp(products / std::sqrt(x_squares * y_squares), -1.0, 1.0);
}

std::vector<double> ranks(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> result(values.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t end = first + 1;
    while (end < order.size() && values[order[end]] == values[order[first]]) ++end;
    // The ranks first + 1 … end, shared.
    for (std::size_t i = first; i < end; ++i) result[order[i]] = static_cast<double>(first + 1 + end) / 2;
    first = end;
  }
  return result;
}

std::optional<double> spearman(std::span<const double> x, std::span<const double> y) {
  return pearson(ranks(x), ranks(y));
}

std::optional<Interval> pearson_interval(double r, std::size_t pairs) { return fisher_interval(r, pairs, 1); }

std::optional<Interval> spearman_interval(double r, std::size_t pairs) {
  return fisher_interval(r, pairs, 1 + r * r / 2);
}

double student_cdf(double t, double degrees) { return cdf(boost::math::students_t(degrees), t); }

double student_quantile(double p, double degrees) {
  LOWTIDE_CHECK(p > 0 && p < 1 && degrees > 0, "a quantile of Student's t");
  return quantile(boost::math::students_t(degrees), p);
}

std::optional<TTest> paired_t_test(std::span<const double> a, std::span<const double> b) {
  LOWTIDE_CHECK(a.size() == b.size(), "pairs");
  if (a.size() < 2) return std::nullopt;
  std::vector<double> differences;
  for (std::size_t i = 0; i < a.size(); ++i) differences.push_back(a[i] - b[i]);
  const auto n = static_cast<double>(a.size());
  return t_test(mean(differences), *sample_deviation(differences) / std::sqrt(n), n - 1, std::abs(mean(a)));
}

std::optional<TTest> welch_t_test(std::span<const double> a, std::span<const double> b) {
  if (a.size() < 2 || b.size() < 2) return std::nullopt;
  const auto na = static_cast<double>(a.size()), nb = static_cast<double>(b.size());
  const double va = sum_of_squares(a) / (na - 1) / na, vb = sum_of_squares(b) / (nb - 1) / nb;
  const double degrees = (va + vb) * (va + vb) / (va * va / (na - 1) + vb * vb / (nb - 1));
  return t_test(mean(a) - mean(b), std::sqrt(va + vb), degrees, std::abs(mean(a)));
}

std::vector<double> holm(std::span<const double> p) {
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return p[a] < p[b]; });
  std::vector<double> adjusted(p.size());
  double largest = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    largest = std::max(largest, std::min(1.0, static_cast<double>(order.size() - i) * p[order[i]]));
    adjusted[order[i]] = largest;
  }
  return adjusted;
}

}  // namespace lowtide
