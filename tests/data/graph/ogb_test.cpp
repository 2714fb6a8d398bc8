#include "lowtide/data/graph/ogb.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/data/image_files.h"
#include "tests/data/real_data.h"
#include "tests/io/scratch.h"

namespace lowtide::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

void write_small(const ScratchFolder& folder) {
  write_gzip(folder / "raw/num-node-list.csv.gz", "4\n");
  write_gzip(folder / "raw/num-edge-list.csv.gz", "3\n");
  write_gzip(folder / "raw/edge.csv.gz", "0,1\n3,0\n0,2\n");
  write_gzip(folder / "raw/node-feat.csv.gz", "0.5,-1e-3\n1,2\n3,4\n5,6\n");
  write_file(folder / "raw/node-label.csv", "2\r\n0\r\n1\r\n2\r\n");  // plain, and from Windows
  write_gzip(folder / "split/time/train.csv.gz", "3\n0\n");
  write_gzip(folder / "split/time/valid.csv.gz", "1\n");
  write_gzip(folder / "split/time/test.csv.gz", "2\n");
}

TEST(Ogb, ReadsANodeFolder) {
  ScratchFolder folder;
  write_small(folder);
  const Graph graph = open_graph("ogb", folder.path());
  EXPECT_EQ(graph.nodes, 4);
  EXPECT_THAT(graph.edges.offsets, ElementsAre(0, 2, 2, 2, 3));
  EXPECT_THAT(graph.edges.indices, ElementsAre(1, 2, 0));
  EXPECT_EQ(graph.features.columns, 2);
  EXPECT_THAT(graph.features.dense, ElementsAre(0.5f, -1e-3f, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(graph.labels, ElementsAre(2, 0, 1, 2));
  EXPECT_EQ(graph.classes, 3);
  EXPECT_THAT(graph.split.train, ElementsAre(3, 0));  // in the order of the file
  EXPECT_THAT(graph.split.valid, ElementsAre(1));
  EXPECT_THAT(graph.split.test, ElementsAre(2));
  EXPECT_THAT(graph.describe(),
              HasSubstr(": 4 nodes, 3 edges, 2 features, 3 classes; 2 to train, 1 to validate, 1 to test"));
  std::filesystem::remove_all(folder / "split");
  EXPECT_TRUE(open_graph("ogb", folder.path()).split.empty());
}

TEST(Ogb, WhatIsMissing) {
  ScratchFolder folder;
  const auto error = [&] { return user_error([&] { open_graph("ogb", folder.path()); }); };
  EXPECT_THAT(error(), StartsWith((folder / "raw/num-node-list.csv.gz").string() + ": no such file"));
  write_small(folder);
  for (const char* file : {"raw/num-edge-list.csv.gz", "raw/edge.csv.gz", "raw/node-feat.csv.gz",
                           "raw/node-label.csv", "split/time/valid.csv.gz"}) {
    write_small(folder);
    std::filesystem::remove(folder / file);
    EXPECT_THAT(error(), AllOf(HasSubstr(std::filesystem::path(file).stem().stem().string()),
                               HasSubstr(": no such file, nor without .gz")));
  }
  write_small(folder);
  write_gzip(folder / "split/random/train.csv.gz", "1\n");
  EXPECT_THAT(error(),
              StartsWith((folder / "split").string() + ": 2 folders in it; expected one way to split"));
  EXPECT_THAT(user_error([&] { open_graph("ogb", folder / "none"); }), HasSubstr("none: no such folder"));
  EXPECT_THAT(user_error([&] { open_graph("gml", folder.path()); }),
              HasSubstr("graph format 'gml' is not known; expected ogb, npz, musae or citation"));
}

// Every damage: the file, its new content, what the message must say.
TEST(Ogb, DamagedFilesAreNamed) {
  struct Damage {
    const char* file;
    const char* content;
    const char* message;
  };
  const std::vector<Damage> damages = {
      {"raw/edge.csv.gz", "0,1\n3,4\n0,2\n", ":2: an edge of node 4, which does not exist; expected 0..3"},
      {"raw/edge.csv.gz", "0,1\n3,0\n-1,2\n", ":3: an edge of node -1, which does not exist"},
      {"raw/edge.csv.gz", "0,1\n3\n0,2\n", ":2: \"3\"; expected two columns, the numbers of two nodes"},
      {"raw/edge.csv.gz", "0,1\n3,0,1\n0,2\n", ":2: \"3,0,1\"; expected two columns"},
      {"raw/edge.csv.gz", "source,target\n3,0\n0,2\n", ":1: \"source,target\"; expected two columns"},
      {"raw/edge.csv.gz", "0,1\n3,0\n", ": 2 edges; expected 1 more"},
      {"raw/edge.csv.gz", "0,1\n3,0\n0,2\n1,2\n", ":4: more edges than its list"},
      {"raw/node-label.csv", "2\n0\n1\n", ": 3 lines; expected 4, one for each node"},
      {"raw/node-label.csv", "2\n0\n1\n2\n0\nx\n", ": more than 4 lines; expected no more"},
      {"raw/node-label.csv", "2\n0\n-1\n2\n", ":3: label \"-1\"; expected one whole number a line, 0..65535"},
      {"raw/node-label.csv", "2\n0\n99999\n2\n", ":3: label \"99999\""},
      {"raw/node-label.csv", "2,1\n0,0\n1,0\n2,2\n", ":1: label \"2,1\"; expected one whole number a line"},
      {"raw/node-label.csv", "2\n0\nnan\n2\n", ":3: label \"nan\""},
      {"raw/node-feat.csv.gz", "1,2\n3,4\n5\n6,7\n", ":3: 1 columns; expected 2 as in the first line"},
      {"raw/node-feat.csv.gz", "1,2\n3,nan\n5,6\n7,8\n",
       ":2: feature 1 is \"nan\"; expected a finite number"},
      {"raw/node-feat.csv.gz", "1,2\n3,\n5,6\n7,8\n", ":2: feature 1 is \"\""},
      {"raw/node-feat.csv.gz", "1,2\n3,4\n5,6\n", ": 3 lines; expected 4, one for each node"},
      {"raw/node-feat.csv.gz", "1,2\n3,4\n5,6\n7,8\n9,9\n9,9\n", ": 5 lines; expected 4"},
      {"raw/num-node-list.csv.gz", "0\n", ":1: number of nodes \"0\""},
      {"raw/num-node-list.csv.gz", "", ": 0 graphs of 0 nodes in all; expected at least one"},
      {"raw/num-edge-list.csv.gz", "3\n3\n",
       ": 1 graphs of 4 nodes in all; expected at least one, as many as"},
      {"split/time/valid.csv.gz", "4\n", ":1: item \"4\"; expected one whole number a line, 0..3"},
      {"split/time/valid.csv.gz", "1\n0\n",
       ":2: item 0 for the second time; expected each in one part, once"},
      {"split/time/test.csv.gz", "", ": empty; expected the items of this part"},
  };
  for (const Damage& damage : damages) {
    ScratchFolder folder;
    write_small(folder);
    write_gzip(folder / damage.file, damage.content);
    const bool plain_counts = std::string(damage.file) == "raw/num-edge-list.csv.gz";
    const std::string named = plain_counts ? "raw/num-node-list.csv.gz" : damage.file;
    EXPECT_THAT(user_error([&] { open_ogb_graph(folder.path()); }),
                StartsWith((folder / named).string() + damage.message));
  }
}

TEST(Ogb, CutShort) {
  ScratchFolder folder;
  write_small(folder);
  const auto path = folder / "raw/node-feat.csv.gz";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 9);
  EXPECT_THAT(user_error([&] { open_ogb_graph(folder.path()); }),
              StartsWith(path.string() + ": damaged gzip file"));
}

void write_two_graphs(const ScratchFolder& folder) {
  write_gzip(folder / "raw/num-node-list.csv.gz", "2\n1\n3\n");
  write_gzip(folder / "raw/num-edge-list.csv.gz", "1\n0\n2\n");
  write_gzip(folder / "raw/edge.csv.gz", "1,0\n0,2\n2,1\n");
  write_gzip(folder / "raw/node-feat.csv.gz", "1\n2\n3\n4\n5\n6\n");
  write_gzip(folder / "raw/graph-label.csv.gz", "1\n0\n1\n");
}

TEST(Ogb, ReadsManyGraphs) {
  ScratchFolder folder;
  write_two_graphs(folder);
  const GraphSet set = open_ogb_graphs(folder.path());
  ASSERT_EQ(set.graphs.size(), 3u);
  EXPECT_THAT(set.labels, ElementsAre(1, 0, 1));
  EXPECT_EQ(set.classes, 2);
  EXPECT_EQ(set.graphs[1].nodes, 1);
  EXPECT_EQ(set.graphs[1].edges.entries(), 0);
  EXPECT_THAT(set.graphs[2].edges.offsets, ElementsAre(0, 1, 1, 2));
  EXPECT_THAT(set.graphs[2].edges.indices, ElementsAre(2, 1));
  EXPECT_THAT(set.graphs[2].features.dense, ElementsAre(4, 5, 6));
  EXPECT_THAT(
      user_error([&] { open_graph("ogb", folder.path()); }),
      StartsWith(folder.path().string() + ": holds 3 graphs; expected one, of a node property task (ogbn"));
  write_gzip(folder / "raw/edge.csv.gz", "2,0\n0,2\n2,1\n");  // node 2 is the third graph's
  EXPECT_THAT(user_error([&] { open_ogb_graphs(folder.path()); }),
              HasSubstr("edge.csv.gz:1: an edge of node 2, which does not exist; expected 0..1"));
}

// Numbers of the data set's paper, and sums that NumPy gives.
TEST(RealGraph, Cora) {
  const auto folder = data_folder() / "graphs" / "cora";
  LOWTIDE_NEEDS_DATA(folder);
  const Graph graph = open_graph("ogb", folder);
  EXPECT_EQ(graph.nodes, 2708);
  EXPECT_EQ(graph.edges.entries(), 5278);
  EXPECT_EQ(graph.features.columns, 1433);
  EXPECT_EQ(std::accumulate(graph.features.dense.begin(), graph.features.dense.end(), 0.0), 49216);
  EXPECT_EQ(graph.classes, 7);
  std::vector<int> of_class(7);
  for (const std::int32_t label : graph.labels) ++of_class[static_cast<std::size_t>(label)];
  EXPECT_THAT(of_class, ElementsAre(351, 217, 418, 818, 426, 298, 180));
  EXPECT_EQ(graph.split.train.size(), 140u);
  EXPECT_EQ(graph.split.valid.size(), 500u);
  EXPECT_EQ(graph.split.test.size(), 1000u);
  const Csr both_ways = undirected(graph.edges);
  EXPECT_EQ(both_ways.entries(), 10556);
  const auto degree = degrees(both_ways);
  EXPECT_EQ(*std::max_element(degree.begin(), degree.end()), 168);
  EXPECT_EQ(with_self_loops(both_ways).entries(), 10556 + 2708);
}

TEST(RealGraph, MolbaceIsMany) {
  const auto folder = data_folder() / "graphs" / "ogbg_molbace";
  LOWTIDE_NEEDS_DATA(folder);
  const GraphSet set = open_ogb_graphs(folder);
  ASSERT_EQ(set.graphs.size(), 1513u);
  EXPECT_EQ(set.graphs[0].nodes, 32);
  EXPECT_EQ(set.graphs[0].edges.entries(), 35);
  std::int64_t nodes = 0, edges = 0;
  double sum = 0;
  for (const Graph& graph : set.graphs) {
    nodes += graph.nodes;
    edges += graph.edges.entries();
    sum += std::accumulate(graph.features.dense.begin(), graph.features.dense.end(), 0.0);
  }
  EXPECT_EQ(nodes, 51577);
  EXPECT_EQ(edges, 55768);
  EXPECT_EQ(sum, 875086);
  EXPECT_EQ(std::accumulate(set.labels.begin(), set.labels.end(), 0), 691);
  EXPECT_EQ(set.split.train.size(), 1210u);
  EXPECT_EQ(set.split.valid.size(), 151u);
  EXPECT_EQ(set.split.test.size(), 152u);
  EXPECT_THAT(user_error([&] { open_graph("ogb", folder); }), HasSubstr("holds 1513 graphs; expected one"));
}

}  // namespace
}  // namespace lowtide::testing
