#include <array>
#include <cstring>
#include <utility>

#include "lowtide/io/safetensors.h"
#include "tests/io/scratch.h"

namespace lowtide {
namespace {

constexpr std::array kEveryDType{DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64,
                                 DType::kI32, DType::kI16, DType::kI8,  DType::kU8,   DType::kBool};

std::string encode(std::span<const TensorView> tensors, const Metadata& metadata = {}) {
  const EncodedSafetensors encoded = encode_safetensors(tensors, metadata);
  std::string bytes = encoded.header;
  for (const ByteSpan data : encoded.data) bytes += text_of(data);
  return bytes;
}

TEST(SafetensorsWriter, GivesTheseBytes) {
  const std::vector<TensorView> tensors{{"b", DType::kU8, {3}, bytes_of("xyz")},
                                        {"a", DType::kF32, {1, 1}, bytes_of("1234")}};
  const std::string json = R"({"__metadata__":{"k":"v"},"b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},)"
                           R"("a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}})";
  ASSERT_EQ(json.size(), 133u);
  const std::string length("\x88\0\0\0\0\0\0\0", 8);  // 136, the next multiple of 8
  EXPECT_EQ(encode(tensors, {{"k", "v"}}), length + json + "   " + "1234xyz");
}

TEST(SafetensorsWriter, AnEmptyFileIsValid) {
  EXPECT_EQ(encode({}), std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
  const std::string bytes = encode({});
  EXPECT_TRUE(parse_safetensors(bytes_of(bytes), "x").tensors.empty());
}

TEST(SafetensorsWriter, RoundTripOfEveryDType) {
  const ScratchFolder folder;
  std::vector<std::string> data;
  for (const DType dtype : kEveryDType)
    data.emplace_back(dtype_size(dtype) * 6, static_cast<char>(data.size() + 1));
  std::vector<TensorView> tensors;
  for (std::size_t i = 0; i < data.size(); ++i) {
    tensors.push_back(
        {"t." + std::string(dtype_name(kEveryDType[i])), kEveryDType[i], {2, 3}, bytes_of(data[i])});
  }
  write_safetensors(folder / "x.safetensors", tensors,
                    {{"state", R"({"step":1,"text":"line\nline ü"})"}, {"", ""}});
  const SafetensorsFile file(folder / "x.safetensors");
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(file.tensors()[i].name, tensors[i].name);
    EXPECT_EQ(file.tensors()[i].dtype, tensors[i].dtype);
    EXPECT_EQ(file.tensors()[i].shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(text_of(file.tensors()[i].data), data[i]);
  }
  EXPECT_EQ(file.metadata().at("state"), R"({"step":1,"text":"line\nline ü"})");
  EXPECT_EQ(file.metadata().at(""), "");
}

TEST(SafetensorsWriter, ScalarsAndEmptyTensors) {
  const std::vector<TensorView> tensors{{"none", DType::kF32, {0}, {}},
                                        {"scalar", DType::kF64, {}, bytes_of("12345678")},
                                        {"flat", DType::kI64, {5, 0, 7}, {}},
                                        {"", DType::kBool, {1}, bytes_of("\x01")}};
  const std::string bytes = encode(tensors);
  const Safetensors read = parse_safetensors(bytes_of(bytes), "x");
  ASSERT_EQ(read.tensors.size(), 4u);
  EXPECT_TRUE(read.tensors[0].data.empty());
  EXPECT_TRUE(read.tensors[1].shape.empty());
  EXPECT_EQ(text_of(read.tensors[1].data), "12345678");
  EXPECT_EQ(read.tensors[2].shape, (std::vector<std::int64_t>{5, 0, 7}));
  EXPECT_EQ(read.tensors[3].name, "");
}

TEST(SafetensorsWriter, EveryTensorIsAligned) {
  const ScratchFolder folder;
  const std::string data(64, 'd');
  std::vector<TensorView> tensors;
  for (int round = 0; round < 3; ++round) {
    for (const DType dtype : kEveryDType) {
      const std::int64_t count = 2 * round + 1;
      const auto bytes = bytes_of(data).first(dtype_size(dtype) * static_cast<std::size_t>(count));
      tensors.push_back({std::to_string(tensors.size()), dtype, {count}, bytes});
    }
  }
  write_safetensors(folder / "x", tensors, {});
  const SafetensorsFile file(folder / "x");
  for (const TensorView& tensor : file.tensors()) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data.data()) % dtype_size(tensor.dtype), 0u)
        << tensor.name;
  }
}

TEST(SafetensorsWriter, NamesThatNeedEscapingComeBack) {
  const std::string name = "a\"\\\n\x01 \xc3\xbc";
  const std::string bytes = encode(std::vector<TensorView>{{name, DType::kU8, {1}, bytes_of("x")}});
  EXPECT_EQ(parse_safetensors(bytes_of(bytes), "x").tensors.at(0).name, name);
}

TEST(SafetensorsWriter, OurOwnMistakesAreInvariants) {
  const auto refused = [](const std::vector<TensorView>& tensors) {
    EXPECT_THROW(encode_safetensors(tensors, {}), std::logic_error);
  };
  refused({{"a", DType::kU8, {1}, bytes_of("x")}, {"a", DType::kU8, {1}, bytes_of("x")}});
  refused({{"a", DType::kU8, {2}, bytes_of("x")}});
  refused({{"a", DType::kU8, {-1}, {}}});
  refused({{"__metadata__", DType::kU8, {1}, bytes_of("x")}});
}

TEST(SafetensorsWriter, TextThatIsNotUtf8IsAUserError) {
  EXPECT_TRUE(contains(user_error([] { encode_safetensors({}, {{"k", "\xff"}}); }), "not valid UTF-8"));
}

TEST(SafetensorsWriter, AFailedWriteKeepsTheOldFile) {
  const ScratchFolder folder;
  write_atomically(folder / "file", "old");
  EXPECT_TRUE(contains(user_error([&] { write_safetensors(folder / "file/x", {}, {}); }), "not a folder"));
  EXPECT_EQ(read_text_file(folder / "file"), "old");
}

TEST(SafetensorsFile, FindsByNameAndSurvivesAMove) {
  const ScratchFolder folder;
  write_safetensors(folder / "x", std::vector<TensorView>{{"w", DType::kU8, {3}, bytes_of("xyz")}},
                    {{"k", "v"}});
  SafetensorsFile first(folder / "x");
  const SafetensorsFile file = std::move(first);
  ASSERT_NE(file.find("w"), nullptr);
  EXPECT_EQ(text_of(file.at("w").data), "xyz");
  EXPECT_EQ(file.find("v"), nullptr);
  EXPECT_TRUE(contains(user_error([&] { file.at("v"); }), (folder / "x").string(), "no tensor \"v\""));
}

TEST(SafetensorsFile, KeepsItsContentWhenTheFileIsReplaced) {
  const ScratchFolder folder;
  write_safetensors(folder / "x", std::vector<TensorView>{{"w", DType::kU8, {3}, bytes_of("old")}}, {});
  const SafetensorsFile file(folder / "x");
  write_safetensors(folder / "x", std::vector<TensorView>{{"w", DType::kU8, {3}, bytes_of("new")}}, {});
  EXPECT_EQ(text_of(file.at("w").data), "old");
  EXPECT_EQ(text_of(SafetensorsFile(folder / "x").at("w").data), "new");
}

TEST(SafetensorsFile, SaysWhatCannotBeOpened) {
  const ScratchFolder folder;
  write_atomically(folder / "empty", "");
  EXPECT_TRUE(contains(user_error([&] { SafetensorsFile(folder / "none"); }), "no such file"));
  EXPECT_TRUE(contains(user_error([&] { SafetensorsFile(folder.path()); }), "it is a folder"));
  EXPECT_TRUE(contains(user_error([&] { SafetensorsFile("/dev/null"); }), "not a regular file"));
  EXPECT_TRUE(contains(user_error([&] { SafetensorsFile(folder / "empty"); }), (folder / "empty").string(),
                       "it has 0 bytes"));
}

}  // namespace
}  // namespace lowtide
