#include "lowtide/data/graph/citation.h"

#include <fmt/format.h>

#include <cmath>

#include "lowtide/base/error.h"
#include "lowtide/data/graph/class_names.h"
#include "lowtide/data/graph/columns.h"
#include "lowtide/data/graph/named_files.h"
#include "lowtide/data/text/vocabulary.h"
#include "lowtide/io/json_check.h"

namespace lowtide {
namespace {

std::vector<std::string_view> split_blanks(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (line.empty()) return words;
    words.push_back(line.substr(0, line.find_first_of(" \t")));
    line.remove_prefix(words.back().size());
  }
}

// Returns the names of the papers, in order.
Vocabulary read_papers(const LineSource& content, Graph& graph) {
  Vocabulary papers;
  std::vector<std::string> classes;
  content.for_each([&](std::string_view line, std::size_t number) {
    const auto words = split_blanks(line);
    const std::int64_t columns = static_cast<std::int64_t>(words.size()) - 2;
    if (number == 1) graph.features.columns = columns;
    if (columns < 1 || columns != graph.features.columns) {
      throw UserError(fmt::format("{}:{}: {} columns; expected a paper, its features and its class, {}",
                                  content.name, number, words.size(), "as many in every line"));
    }
    if (papers.add(words.front()) != static_cast<std::int32_t>(number - 1)) {
      throw UserError(fmt::format("{}:{}: paper {} for the second time; expected each once", content.name,
                                  number, shown(words.front())));
    }
    for (std::size_t i = 1; i + 1 < words.size(); ++i) {
      const auto value = parse_number<float>(words[i]);
      if (!value || !std::isfinite(*value)) {
        throw UserError(fmt::format("{}:{}: feature {} is {}; expected a finite number", content.name, number,
                                    i - 1, shown(words[i])));
      }
      graph.features.dense.push_back(*value);
    }
    classes.emplace_back(words.back());
  });
  if (classes.empty())
    throw UserError(fmt::format("{}: empty; expected a line for each paper", content.name));
  graph.nodes = papers.size();
  label_by_name(classes, graph);
  return papers;
}

std::vector<Edge> read_citations(const LineSource& cites, const Vocabulary& papers,
                                 const std::string& content_name) {
  std::vector<Edge> edges;
  std::size_t unknown = 0, first_line = 0;
  std::string first_paper;
  cites.for_each([&](std::string_view line, std::size_t number) {
    const auto words = split_blanks(line);
    if (words.size() != 2) {
      throw UserError(fmt::format("{}:{}: {} columns; expected two, the cited and the citing paper",
                                  cites.name, number, words.size()));
    }
    const auto cited = papers.find(words[0]), citing = papers.find(words[1]);
    if (cited && citing) {
      edges.push_back({*citing, *cited});
    } else if (unknown++ == 0) {
      first_line = number;
      first_paper = shown(cited ? words[1] : words[0]);
    }
  });
  if (unknown > 0) {
    throw UserError(fmt::format(
        "{}:{}: paper {} is not in {}; expected edges between papers that are: remove this line and "
        "{} more of that kind",
        cites.name, first_line, first_paper, content_name, unknown - 1));
  }
  return edges;
}

}  // namespace

Graph parse_citation(const LineSource& content, const LineSource& cites) {
  Graph graph;
  graph.place = content.name;
  const Vocabulary papers = read_papers(content, graph);
  graph.edges = csr_from_edges(graph.nodes, read_citations(cites, papers, content.name));
  return graph;
}

Graph open_citation(const std::filesystem::path& folder) {
  return parse_citation(lines_of_file(only_file(folder, ".content")),
                        lines_of_file(only_file(folder, ".cites")));
}

}  // namespace lowtide
