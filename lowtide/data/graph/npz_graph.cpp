#include "lowtide/data/graph/npz_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lowtide/base/error.h"
#include "lowtide/data/graph/columns.h"
#include "lowtide/io/mapped_file.h"
#include "lowtide/io/npy.h"
#include "lowtide/io/zip.h"

namespace lowtide {
namespace {

std::string full_name(const ZipArchive& archive, const std::string& array) {
  return fmt::format("{}, {}", archive.name(), array);
}

std::vector<std::int64_t> integers(const ZipArchive& archive, const std::string& array) {
  const auto bytes = archive.read(array + ".npy");
  const std::string name = full_name(archive, array);
  return npy_integers(parse_npy(bytes, name), name);
}

std::vector<float> floats(const ZipArchive& archive, const std::string& array) {
  const auto bytes = archive.read(array + ".npy");
  return npy_floats(parse_npy(bytes, full_name(archive, array)));
}

struct SparseMatrix {
  Csr pattern;
  std::vector<float> values;
};

void check_offsets(const std::vector<std::int64_t>& offsets, std::int64_t rows, std::size_t entries,
                   const std::string& name) {
  const bool whole = static_cast<std::int64_t>(offsets.size()) == rows + 1 && offsets.front() == 0 &&
                     offsets.back() == static_cast<std::int64_t>(entries) &&
                     std::is_sorted(offsets.begin(), offsets.end());
  if (whole) return;
  throw UserError(fmt::format("{}: {} offsets; expected {} that rise from 0 to {}, the number of indices",
                              name, offsets.size(), rows + 1, entries));
}

SparseMatrix read_matrix(const ZipArchive& archive, const std::string& prefix) {
  const auto shape = integers(archive, prefix + "_shape");
  if (shape.size() != 2 || *std::min_element(shape.begin(), shape.end()) < 1 ||
      *std::max_element(shape.begin(), shape.end()) > kMaxNodes) {
    throw UserError(fmt::format("{}: not the shape of a matrix; expected two numbers, 1..{}",
                                full_name(archive, prefix + "_shape"), kMaxNodes));
  }
  SparseMatrix matrix;
  matrix.pattern.columns = shape[1];
  matrix.pattern.offsets = integers(archive, prefix + "_indptr");
  const auto indices = integers(archive, prefix + "_indices");
  check_offsets(matrix.pattern.offsets, shape[0], indices.size(), full_name(archive, prefix + "_indptr"));
  for (const std::int64_t index : indices) {
    if (index >= 0 && index < shape[1]) continue;
    throw UserError(fmt::format("{}: column {} does not exist; expected 0..{}",
                                full_name(archive, prefix + "_indices"), index, shape[1] - 1));
  }
  matrix.pattern.indices.assign(indices.begin(), indices.end());
  matrix.values = floats(archive, prefix + "_data");
  if (matrix.values.size() != indices.size()) {
    throw UserError(fmt::format("{}: {} values; expected {}, one for each index",
                                full_name(archive, prefix + "_data"), matrix.values.size(), indices.size()));
  }
  return matrix;
}

void sort_rows(Csr& graph) {
  for (std::size_t i = 0; i + 1 < graph.offsets.size(); ++i) {
    std::sort(graph.indices.begin() + graph.offsets[i], graph.indices.begin() + graph.offsets[i + 1]);
  }
}

void read_edges(const ZipArchive& archive, Graph& graph) {
  SparseMatrix matrix = read_matrix(archive, "adj");
  if (matrix.pattern.rows() != matrix.pattern.columns) {
    throw UserError(fmt::format("{}: {} rows and {} columns; expected as many, one for each node",
                                full_name(archive, "adj_shape"), matrix.pattern.rows(),
                                matrix.pattern.columns));
  }
  for (const float weight : matrix.values) {
    if (weight == 1) continue;
    throw UserError(fmt::format("{}: an edge of weight {}; expected 1: graphs with weights are not read",
                                full_name(archive, "adj_data"), weight));
  }
  graph.nodes = matrix.pattern.rows();
  graph.edges = std::move(matrix.pattern);
  sort_rows(graph.edges);
}

void read_features(const ZipArchive& archive, Graph& graph) {
  SparseMatrix matrix = read_matrix(archive, "attr");
  if (matrix.pattern.rows() != graph.nodes) {
    throw UserError(fmt::format("{}: {} rows; expected {}, one for each node",
                                full_name(archive, "attr_shape"), matrix.pattern.rows(), graph.nodes));
  }
  for (const float value : matrix.values) {
    if (!std::isfinite(value)) {
      throw UserError(
          fmt::format("{}: holds {}; expected finite numbers", full_name(archive, "attr_data"), value));
    }
  }
  if (matrix.pattern.columns > kMaxFeatures) {
    throw UserError(fmt::format("{}: {} columns of features; expected at most {}",
                                full_name(archive, "attr_shape"), matrix.pattern.columns, kMaxFeatures));
  }
  graph.features.columns = matrix.pattern.columns;
  graph.features.sparse = std::move(matrix.pattern);
  graph.features.values = std::move(matrix.values);
}

void read_labels(const ZipArchive& archive, Graph& graph) {
  const auto labels = integers(archive, "labels");
  const std::string name = full_name(archive, "labels");
  if (static_cast<std::int64_t>(labels.size()) != graph.nodes) {
    throw UserError(
        fmt::format("{}: {} labels; expected {}, one for each node", name, labels.size(), graph.nodes));
  }
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0 || labels[i] >= kMaxClasses) {
      throw UserError(fmt::format("{}: label {} of node {} is out of range; expected 0..{}", name, labels[i],
                                  i, kMaxClasses - 1));
    }
    graph.classes = std::max(graph.classes, static_cast<int>(labels[i]) + 1);
  }
  graph.labels.assign(labels.begin(), labels.end());
}

}  // namespace

Graph parse_npz_graph(ByteSpan bytes, const std::string& name) {
  const ZipArchive archive(bytes, name);
  Graph graph;
  graph.place = name;
  read_edges(archive, graph);
  read_features(archive, graph);
  read_labels(archive, graph);
  return graph;
}

Graph open_npz_graph(const std::filesystem::path& path) {
  return parse_npz_graph(MappedFile(path).bytes(), path.string());
}

}  // namespace lowtide
