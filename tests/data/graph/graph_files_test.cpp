// Graphs in .npz, of MUSAE and as citation text.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "lowtide/data/graph/graph.h"
#include "tests/data/image_files.h"
#include "tests/data/real_data.h"
#include "tests/io/scratch.h"
#include "tests/io/zip_files.h"

namespace lowtide::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Files = std::map<std::string, std::string>;

// 0 → 2, 0 → 1, 2 → 2, rows unsorted; features 1.5 in column 1 of node 0, 2 and 3 in columns 0 and 3 of node 2.
Files small_arrays() {
  return {{"adj_data.npy", npy_vector<float>("<f4", {1, 1, 1})},
          {"adj_indices.npy", npy_vector<std::int32_t>("<i4", {2, 1, 2})},
          {"adj_indptr.npy", npy_vector<std::int32_t>("<i4", {0, 2, 2, 3})},
          {"adj_shape.npy", npy_vector<std::int64_t>("<i8", {3, 3})},
          {"attr_data.npy", npy_vector<double>("<f8", {1.5, 2, 3})},
          {"attr_indices.npy", npy_vector<std::int64_t>("<i8", {1, 0, 3})},
          {"attr_indptr.npy", npy_vector<std::int32_t>("<i4", {0, 1, 1, 3})},
          {"attr_shape.npy", npy_vector<std::int64_t>("<i8", {3, 4})},
          {"class_names.npy", "names, which nobody reads"},
          {"labels.npy", npy_vector<std::uint8_t>("|u1", {1, 0, 4})}};
}

void write_npz(const std::filesystem::path& path, const Files& files) {
  write_file(path, zip_of({files.begin(), files.end()}));
}

TEST(NpzGraph, ReadsCsrArrays) {
  ScratchFolder folder;
  write_npz(folder / "g.npz", small_arrays());
  const Graph graph = open_graph("npz", folder / "g.npz");
  EXPECT_EQ(graph.nodes, 3);
  EXPECT_THAT(graph.edges.offsets, ElementsAre(0, 2, 2, 3));
  EXPECT_THAT(graph.edges.indices, ElementsAre(1, 2, 2));
  EXPECT_TRUE(graph.features.is_sparse());
  EXPECT_EQ(graph.features.columns, 4);
  EXPECT_THAT(graph.features.sparse.indices, ElementsAre(1, 0, 3));
  EXPECT_THAT(graph.features.values, ElementsAre(1.5f, 2, 3));
  EXPECT_THAT(graph.labels, ElementsAre(1, 0, 4));
  EXPECT_EQ(graph.classes, 5);
  EXPECT_TRUE(graph.split.empty());
  EXPECT_THAT(graph.describe(), HasSubstr("3 nodes, 3 edges, 4 sparse features, 5 classes; no split"));
}

TEST(NpzGraph, DamagedArraysAreNamed) {
  struct Damage {
    const char* array;
    std::string content;
    const char* message;
  };
  const std::vector<Damage> damages = {
      {"adj_indices", npy_vector<std::int32_t>("<i4", {2, 3, 2}), ": column 3 does not exist; expected 0..2"},
      {"adj_indices", npy_vector<std::int32_t>("<i4", {2, -1, 2}), ": column -1 does not exist"},
      {"adj_indptr", npy_vector<std::int32_t>("<i4", {0, 2, 1, 3}),
       ": 4 offsets; expected 4 that rise from 0 to 3"},
      {"adj_indptr", npy_vector<std::int32_t>("<i4", {0, 2, 3}), ": 3 offsets; expected 4 that rise"},
      {"adj_indptr", npy_vector<std::int32_t>("<i4", {0, 2, 2, 4}),
       ": 4 offsets; expected 4 that rise from 0 to 3"},
      {"adj_indptr", npy_vector<std::int32_t>("<i4", {-1, 2, 2, 3}), ": 4 offsets"},
      {"adj_data", npy_vector<float>("<f4", {1, 0.5, 1}), ": an edge of weight 0.5; expected 1"},
      {"adj_data", npy_vector<float>("<f4", {1, 1}), ": 2 values; expected 3"},
      {"adj_shape", npy_vector<std::int64_t>("<i8", {3, 4}), ": 3 rows and 4 columns; expected as many"},
      {"adj_shape", npy_vector<std::int64_t>("<i8", {3}), ": not the shape of a matrix"},
      {"attr_shape", npy_vector<std::int64_t>("<i8", {3, 0}), ": not the shape of a matrix"},
      {"attr_data", npy_vector<float>("<f4", {1, INFINITY, 1}), ": holds inf; expected finite numbers"},
      {"attr_shape", npy_vector<std::int64_t>("<i8", {3, 10'000'000}),
       ": 10000000 columns of features; expected at most 1048576"},
      {"labels", npy_vector<std::int32_t>("<i4", {0, 1}), ": 2 labels; expected 3, one for each node"},
      {"labels", npy_vector<std::int32_t>("<i4", {0, -1, 2}),
       ": label -1 of node 1 is out of range; expected 0..65535"},
      {"labels", npy_vector<float>("<f4", {0, 1, 2}), ": holds floats; expected whole numbers"},
      {"labels", "text and no array", ": does not begin as one"},
  };
  for (const Damage& damage : damages) {
    ScratchFolder folder;
    Files files = small_arrays();
    files[std::string(damage.array) + ".npy"] = damage.content;
    write_npz(folder / "g.npz", files);
    EXPECT_THAT(user_error([&] { open_graph("npz", folder / "g.npz"); }),
                StartsWith((folder / "g.npz").string() + ", " + damage.array + damage.message));
  }
  ScratchFolder folder;
  Files files = small_arrays();
  files.erase("labels.npy");
  write_npz(folder / "g.npz", files);
  EXPECT_THAT(user_error([&] { open_graph("npz", folder / "g.npz"); }),
              HasSubstr("g.npz: no \"labels.npy\" in it"));
  write_file(folder / "g.npz", "not a zip");
  EXPECT_THAT(user_error([&] { open_graph("npz", folder / "g.npz"); }), HasSubstr("no zip archive"));
}

void write_musae(const ScratchFolder& folder) {
  write_file(folder / "musae_x_edges.csv", "id_1,id_2\n0,2\n2,1\n");
  write_file(folder / "musae_x_target.csv",
             "id,name,page_type\n0,\"a, \"\"b\"\"\",tv\n2,c,company\n1,d,tv\n");
  write_file(folder / "musae_x_features.json", "{\"1\": [3, 0, 3], \"0\": [], \"2\": [4]}");
}

TEST(Musae, ReadsTheThreeFiles) {
  ScratchFolder folder;
  write_musae(folder);
  const Graph graph = open_graph("musae", folder.path());
  EXPECT_EQ(graph.nodes, 3);
  EXPECT_THAT(graph.labels, ElementsAre(1, 1, 0));  // company, tv
  EXPECT_EQ(graph.classes, 2);
  EXPECT_THAT(graph.edges.offsets, ElementsAre(0, 1, 1, 2));
  EXPECT_THAT(graph.edges.indices, ElementsAre(2, 1));
  EXPECT_EQ(graph.features.columns, 5);
  EXPECT_THAT(graph.features.sparse.offsets, ElementsAre(0, 0, 2, 3));
  EXPECT_THAT(graph.features.sparse.indices, ElementsAre(0, 3, 4));
  EXPECT_THAT(graph.features.values, ElementsAre(1, 1, 1));
}

TEST(Musae, DamagedFilesAreNamed) {
  struct Damage {
    const char* file;
    const char* content;
    const char* message;
  };
  const std::vector<Damage> damages = {
      {"edges.csv", "id_1,id_2\n0,3\n", ":2: an edge of node 3, which does not exist; expected 0..2"},
      {"edges.csv", "0,2\n2,1\n", ":1: \"0,2\"; expected a header of two columns, id_1,id_2"},
      {"edges.csv", "id_1\n0\n", ":1: \"id_1\"; expected a header"},
      {"target.csv", "id,name\n0,a\n1,b\n2,c\n", ":1: a column is missing; expected a header with id"},
      {"target.csv", "page_type\ntv\n", ":1: a column is missing"},
      {"target.csv", "id,page_type\n0,tv\n1\n2,tv\n", ":3: 1 columns; expected 2 as in the header"},
      {"target.csv", "id,page_type\n0,\"tv\n", ":2: unmatched quotes in its columns; expected 2"},
      {"target.csv", "id,page_type\n0,tv\nx,tv\n", ":3: node \"x\" of class \"tv\"; expected a whole number"},
      {"target.csv", "id,page_type\n0,tv\n1,\n", ":3: node \"1\" of class \"\""},
      {"target.csv", "id,page_type\n0,tv\n2,tv\n", ": node 2 among 2; expected 0..1, each once"},
      {"target.csv", "id,page_type\n0,tv\n0,tv\n", ": node 0 among 2; expected 0..1, each once"},
      {"target.csv", "id,page_type\n", ": no nodes in it"},
      {"features.json", "{\"0\": [1], \"1\": [1]}",
       ": features of 2 nodes; expected an object with a list for each of 3"},
      {"features.json", "[1]", ": features of 0 nodes"},
      {"features.json", "{\"0\": [1], \"1\": [1], \"1\": [1]}", ": has the key \"1\" twice"},
      {"features.json", "{\"0\": [1], \"1\": [1], \"01\": [1]}", ": \"01\": array; expected a node, 0..2"},
      {"features.json", "{\"0\": [1], \"1\": 7, \"2\": [1]}",
       ": \"1\": number; expected a node, 0..2, and the list"},
      {"features.json", "{\"0\": [1], \"1\": [-4], \"2\": [1]}", ": node \"1\" has the feature \"-4\""},
      {"features.json", "{\"0\": [1], \"1\": [9999999], \"2\": [1]}",
       ": node \"1\" has the feature \"9999999\"; expected whole numbers, 0..1048575"},
      {"features.json", "{\"0\": [], \"1\": [], \"2\": []}", ": no node has a feature"},
      {"features.json", "{\"0\": [[[[1]]]]}", ": is nested more than 2 levels deep"},
      {"features.json", "{\"0\": [1], ", ": is not valid JSON"},
  };
  for (const Damage& damage : damages) {
    ScratchFolder folder;
    write_musae(folder);
    const auto path = folder / (std::string("musae_x_") + damage.file);
    write_file(path, damage.content);
    EXPECT_THAT(user_error([&] { open_graph("musae", folder.path()); }),
                StartsWith(path.string() + damage.message));
  }
  ScratchFolder folder;
  EXPECT_THAT(user_error([&] { open_graph("musae", folder.path()); }),
              HasSubstr(": 0 files of a name that ends with _target.csv; expected one"));
}

TEST(Citation, ReadsContentAndCites) {
  ScratchFolder folder;
  write_file(folder / "x.content", "p9\t0\t1\t0.5\tTheory\np1\t1\t0\t0\tAgents\nkey-7 1 1 1 Theory\n");
  write_file(folder / "x.cites", "p9\tp1\nkey-7 p9\n");
  const Graph graph = open_graph("citation", folder.path());
  EXPECT_EQ(graph.nodes, 3);
  EXPECT_EQ(graph.features.columns, 3);
  EXPECT_THAT(graph.features.dense, ElementsAre(0, 1, 0.5f, 1, 0, 0, 1, 1, 1));
  EXPECT_THAT(graph.labels, ElementsAre(1, 0, 1));  // Agents, Theory
  // The second of a line cites the first: p1 → p9, p9 → key-7.
  EXPECT_THAT(graph.edges.offsets, ElementsAre(0, 1, 2, 2));
  EXPECT_THAT(graph.edges.indices, ElementsAre(2, 0));
}

TEST(Citation, DamagedFilesAreNamed) {
  ScratchFolder folder;
  const auto error = [&](const std::string& content, const std::string& cites) {
    write_file(folder / "x.content", content);
    write_file(folder / "x.cites", cites);
    return user_error([&] { open_graph("citation", folder.path()); });
  };
  const std::string good = "a 0 1 A\nb 1 0 B\n";
  EXPECT_THAT(error(good, "a b\nb z\ny a\n"),
              AllOf(StartsWith((folder / "x.cites").string() + ":2: paper \"z\" is not in "),
                    HasSubstr("remove this line and 1 more of that kind")));
  EXPECT_THAT(error(good, "a b\nb\n"), HasSubstr("x.cites:2: 1 columns; expected two"));
  EXPECT_THAT(error(good + "a 1 1 A\n", ""), HasSubstr("x.content:3: paper \"a\" for the second time"));
  EXPECT_THAT(error(good + "c 1 A\n", ""),
              HasSubstr("x.content:3: 3 columns; expected a paper, its features"));
  EXPECT_THAT(error("a A\n", ""), HasSubstr("x.content:1: 2 columns"));
  EXPECT_THAT(error(good + "c 1 x A\n", ""),
              HasSubstr("x.content:3: feature 1 is \"x\"; expected a finite number"));
  EXPECT_THAT(error("", ""), HasSubstr("x.content: empty"));
  write_file(folder / "y.content", good);
  EXPECT_THAT(user_error([&] { open_graph("citation", folder.path()); }),
              HasSubstr(": 2 files of a name that ends with .content; expected one"));
}

std::vector<int> class_counts(const Graph& graph) {
  std::vector<int> counts(static_cast<std::size_t>(graph.classes));
  for (const std::int32_t label : graph.labels) ++counts[static_cast<std::size_t>(label)];
  return counts;
}

// Numbers that NumPy gives.
TEST(RealGraph, CoauthorPhysics) {
  const auto path = data_folder() / "graphs" / "coauthor_physics.npz";
  LOWTIDE_NEEDS_DATA(path);
  const Graph graph = open_graph("npz", path);
  EXPECT_EQ(graph.nodes, 34'493);
  EXPECT_EQ(graph.edges.entries(), 495'924);
  EXPECT_EQ(undirected(graph.edges).entries(), 495'924);
  std::int64_t sum = 0;  // of index · position mod 1,000,003: any that is wrong or out of place changes it
  for (std::size_t i = 0; i < graph.edges.indices.size(); ++i) {
    sum += graph.edges.indices[i] * static_cast<std::int64_t>(i) % 1'000'003;
  }
  EXPECT_EQ(sum, 248'073'036'485);
  EXPECT_EQ(graph.features.columns, 8'415);
  EXPECT_EQ(graph.features.values.size(), 1'137'311u);
  EXPECT_EQ(std::accumulate(graph.features.values.begin(), graph.features.values.end(), 0.0), 1'930'034);
  EXPECT_THAT(class_counts(graph), ElementsAre(5750, 5045, 17426, 2753, 3519));
  EXPECT_EQ(split_by_class(graph.labels, graph.classes, 20, 30, 0).test.size(), 34'493u - 5 * 50);
  std::vector<float> row(8'415);
  const std::vector<std::int32_t> node = {100};
  gather_rows(graph.features, node, row.data());
  EXPECT_EQ(std::accumulate(row.begin(), row.end(), 0.0), 24);
}

TEST(RealGraph, MusaeFacebook) {
  const auto folder = data_folder() / "graphs" / "musae-facebook";
  LOWTIDE_NEEDS_DATA(folder);
  const Graph graph = open_graph("musae", folder);
  EXPECT_EQ(graph.nodes, 22'470);
  EXPECT_EQ(graph.edges.entries(), 171'002);
  EXPECT_EQ(undirected(graph.edges).entries(), 2 * 171'002 - 179);  // 179 pages like themselves
  EXPECT_EQ(graph.features.columns, 4'714);
  EXPECT_EQ(graph.features.values.size(), 314'583u);
  EXPECT_THAT(class_counts(graph),
              ElementsAre(6495, 6880, 5768, 3327));  // company, government, politician, tvshow
}

}  // namespace
}  // namespace lowtide::testing
