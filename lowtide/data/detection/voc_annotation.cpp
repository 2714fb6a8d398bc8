#include <expat.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <optional>

#include "lowtide/base/error.h"
#include "lowtide/data/detection/voc.h"
#include "lowtide/io/json_check.h"

namespace lowtide {
namespace {

constexpr int kMaxSide = 65535;  // of a JPEG
constexpr int kMaxDepth = 32;    // annotation/object/part/bndbox/xmin has five levels
constexpr std::size_t kMaxNameBytes = 200;

std::string_view trimmed(std::string_view text) {
  constexpr const char* kBlank = " \t\r\n";
  const std::size_t begin = std::min(text.find_first_not_of(kBlank), text.size());
  const std::size_t end = text.find_last_not_of(kBlank);
  return text.substr(begin, end == text.npos ? 0 : end + 1 - begin);
}

// Follows expat from element to element by the path to where it is: annotation/object/bndbox/xmin is an
// object's, annotation/object/part/bndbox/xmin a part's. No exception may cross expat's C frames: the first
// problem is kept, and parsing stopped.
class AnnotationParser {
 public:
  explicit AnnotationParser(const std::string& name) : name_(name), parser_(XML_ParserCreate(nullptr)) {
    if (parser_ == nullptr) throw std::bad_alloc();
    XML_SetUserData(parser_, this);
    XML_SetElementHandler(
        parser_, [](void* self, const char* element, const char**) { of(self).start(element); },
        [](void* self, const char*) { of(self).end(); });
    XML_SetCharacterDataHandler(parser_, [](void* self, const char* text, int size) {
      of(self).text_.append(text, static_cast<std::size_t>(size));
    });
    // Entities could make gigabytes of a few bytes, and no annotation has any.
    XML_SetStartDoctypeDeclHandler(parser_, [](void* self, const char*, const char*, const char*, int) {
      of(self).fail("a DOCTYPE; expected an annotation of Pascal VOC");
    });
  }
  AnnotationParser(const AnnotationParser&) = delete;
  AnnotationParser& operator=(const AnnotationParser&) = delete;
  ~AnnotationParser() { XML_ParserFree(parser_); }

  VocAnnotation parse(std::string_view xml) {
    const auto status = XML_Parse(parser_, xml.data(), static_cast<int>(xml.size()), XML_TRUE);
    if (status != XML_STATUS_OK && problem_.empty()) {
      fail(fmt::format("not XML: {}; expected an annotation of Pascal VOC",
                       XML_ErrorString(XML_GetErrorCode(parser_))));
    }
    if (problem_.empty()) finish();
    if (!problem_.empty()) throw UserError(problem_);
    return std::move(annotation_);
  }

 private:
  static AnnotationParser& of(void* self) { return *static_cast<AnnotationParser*>(self); }

  void fail(const std::string& what) {
    if (!problem_.empty()) return;
    problem_ = fmt::format("{}:{}: {}", name_, XML_GetCurrentLineNumber(parser_), what);
    XML_StopParser(parser_, XML_FALSE);
  }

  void start(const char* element) {
    if (++depth_ > kMaxDepth) return fail(fmt::format("nested more than {} levels deep", kMaxDepth));
    path_ += path_.empty() ? "" : "/";
    path_ += element;
    text_.clear();
    if (path_ == "annotation/object") {
      object_ = {};
      for (auto& edge : edges_) edge.reset();
    }
  }

  void end() {
    --depth_;
    take(trimmed(text_));
    text_.clear();
    const std::size_t slash = path_.rfind('/');
    path_.resize(slash == path_.npos ? 0 : slash);
  }

  void take(std::string_view text) {
    static constexpr std::array<std::string_view, 4> kEdges = {
        "annotation/object/bndbox/xmin", "annotation/object/bndbox/ymin", "annotation/object/bndbox/xmax",
        "annotation/object/bndbox/ymax"};
    if (path_ == "annotation") seen_ = true;
    if (path_ == "annotation/size/width") annotation_.width = side(text);
    if (path_ == "annotation/size/height") annotation_.height = side(text);
    if (path_ == "annotation/object/name") take_class(text);
    if (path_ == "annotation/object/difficult") object_.difficult = truth(text);
    if (path_ == "annotation/object/truncated") object_.truncated = truth(text);
    const auto edge = std::find(kEdges.begin(), kEdges.end(), path_);
    if (edge != kEdges.end()) take_edge(static_cast<std::size_t>(edge - kEdges.begin()), text);
    if (path_ == "annotation/object") take_object();
  }

  int side(std::string_view text) {
    const auto value = parse_number<int>(text);
    if (!value || *value < 1 || *value > kMaxSide) {
      fail(fmt::format("a side of {}; expected 1..{} pixels", shown(text), kMaxSide));
    }
    return value.value_or(0);
  }

  bool truth(std::string_view text) {
    if (text != "0" && text != "1") fail(fmt::format("a mark of {}; expected 0 or 1", shown(text)));
    return text == "1";
  }

  void take_class(std::string_view text) {
    const bool controls = std::any_of(
        text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; });
    if (text.empty() || controls || text.size() > kMaxNameBytes) {
      return fail(fmt::format("a class named {}; expected a name in one line, of at most {} bytes",
                              shown(text), kMaxNameBytes));
    }
    object_.class_name = text;
  }

  void take_edge(std::size_t which, std::string_view text) {
    edges_[which] = parse_number<float>(text);
    if (!edges_[which] || !std::isfinite(*edges_[which])) {
      fail(fmt::format("an edge of a box at {}; expected a number", shown(text)));
    }
  }

  void take_object() {
    if (object_.class_name.empty() ||
        !std::all_of(edges_.begin(), edges_.end(), [](const auto& edge) { return edge.has_value(); })) {
      return fail("an object without a name or a whole box; expected name, xmin, ymin, xmax and ymax");
    }
    object_.box = {*edges_[0] - 1, *edges_[1] - 1, *edges_[2], *edges_[3]};
    object_.line = static_cast<std::int64_t>(XML_GetCurrentLineNumber(parser_));
    annotation_.objects.push_back(object_);
  }

  // The size may stand after the objects.
  void finish() {
    if (!seen_ || annotation_.width == 0 || annotation_.height == 0) {
      problem_ = fmt::format("{}: no size of an image; expected an annotation of Pascal VOC", name_);
      return;
    }
    for (VocObject& object : annotation_.objects) {
      BoundingBox& box = object.box;
      const BoundingBox within = clipped(box, annotation_.width, annotation_.height);
      if (area(within) <= 0 && problem_.empty()) {
        problem_ = fmt::format("{}:{}: a box from {}, {} to {}, {}; expected one in an image of {}x{}", name_,
                               object.line, box.left + 1, box.top + 1, box.right, box.bottom,
                               annotation_.width, annotation_.height);
      }
      box = within;
    }
  }

  const std::string& name_;
  XML_Parser parser_;
  std::string path_, text_, problem_;
  int depth_ = 0;
  bool seen_ = false;
  VocAnnotation annotation_;
  VocObject object_;  // the one at work
  std::array<std::optional<float>, 4> edges_;
};

}  // namespace

VocAnnotation parse_voc_annotation(std::string_view xml, const std::string& name) {
  return AnnotationParser(name).parse(xml);
}

}  // namespace lowtide
