#include "lowtide/data/text/plain_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/image_files.h"
#include "tests/data/real_data.h"
#include "tests/io/scratch.h"

namespace lowtide::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const TextOptions kWords, kCharacters{.characters = true};

std::vector<std::string> words_of(const Vocabulary& vocabulary) {
  std::vector<std::string> words;
  for (std::int32_t i = 0; i < vocabulary.size(); ++i) words.push_back(vocabulary.word(i));
  return words;
}

std::vector<std::string> vocabulary_of(const std::string& text, const TextOptions& options) {
  return words_of(text_vocabulary(text, "x", options));
}

TEST(PlainText, WordsInOrderOfAppearance) {
  const std::string text = "the  cat\tsat\r\n\n the mat";
  EXPECT_THAT(vocabulary_of(text, kWords), ElementsAre("<unk>", "the", "cat", "sat", "<eos>", "mat"));
  EXPECT_THAT(encode_text(text, "x", text_vocabulary(text, "x", kWords), kWords),
              ElementsAre(1, 2, 3, 4, 4, 1, 5, 4));
}

TEST(PlainText, RareWordsAreUnknown) {
  const std::string text = "a b a\nc b a\n";
  const TextOptions twice{.min_count = 2}, thrice{.min_count = 3};
  EXPECT_THAT(vocabulary_of(text, twice), ElementsAre("<unk>", "a", "b", "<eos>"));
  EXPECT_THAT(vocabulary_of(text, thrice), ElementsAre("<unk>", "a", "<eos>")) << "the end of a line stays";
  const Vocabulary vocabulary = text_vocabulary(text, "x", twice);
  EXPECT_THAT(encode_text("c a zebra\n", "y", vocabulary, twice), ElementsAre(0, 1, 0, 3));
  EXPECT_THAT(user_error([&] { text_vocabulary(text, "x", {.min_count = 4}); }),
              StartsWith("x: nothing occurs 4 times or more; expected a lower --min-count"));
  // A text that was prepared elsewhere has its own.
  EXPECT_THAT(vocabulary_of("a <unk> b\n", kWords), ElementsAre("<unk>", "a", "b", "<eos>"));
}

TEST(PlainText, CharactersOfUtf8) {
  const std::string text = "aé a\n日\n";
  EXPECT_THAT(vocabulary_of(text, kCharacters), ElementsAre("<unk>", "a", "é", " ", "<eos>", "日"));
  EXPECT_THAT(encode_text(text, "x", text_vocabulary(text, "x", kCharacters), kCharacters),
              ElementsAre(1, 2, 3, 1, 4, 5, 4));
}

TEST(PlainText, WhatIsNoText) {
  for (const TextOptions& options : {kWords, kCharacters}) {
    EXPECT_THAT(user_error([&] { text_vocabulary("", "x", options); }), StartsWith("x: nothing in it"));
    EXPECT_THAT(user_error([&] { text_vocabulary("\n\n", "x", options); }), StartsWith("x: nothing in it"));
    EXPECT_THAT(user_error([&] { text_vocabulary(std::string("a\0b", 3), "x", options); }),
                StartsWith("x: holds a zero byte"));
    EXPECT_THAT(user_error([&] { text_vocabulary("a\nb\xff\n", "x", options); }),
                StartsWith("x:2: not UTF-8"));
  }
}

TEST(PlainText, OneFileIsCutAtLineEnds) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "line " + std::to_string(100 + i) + "\n";
  const TextParts parts = cut_text(text);
  EXPECT_EQ(std::string(parts.train) + std::string(parts.valid) + std::string(parts.test), text);
  // The cut follows the line that holds nine tenths of the bytes.
  EXPECT_TRUE(parts.train.ends_with("line 190\n"));
  EXPECT_TRUE(parts.valid.starts_with("line 191\n"));
  EXPECT_TRUE(parts.valid.ends_with("line 195\n"));
  EXPECT_TRUE(parts.test.starts_with("line 196\n"));
}

TEST(PlainText, OneLineIsCutBetweenWordsOrCharacters) {
  std::string words, characters;
  for (int i = 0; i < 100; ++i) words += "word ";
  for (int i = 0; i < 100; ++i) characters += "日";
  const TextParts of_words = cut_text(words), of_characters = cut_text(characters);
  EXPECT_EQ(of_words.train.size(), 455u);  // after the word that begins at nine tenths of 500
  EXPECT_EQ(of_words.valid.size(), 25u);
  EXPECT_EQ(of_characters.train.size(), 270u);
  EXPECT_EQ(of_characters.valid.size() + of_characters.test.size(), 30u);
  EXPECT_EQ(of_characters.valid.size() % 3, 0u) << "no character is cut";
}

TEST(PlainText, OpensAFolderOrAFile) {
  ScratchFolder folder;
  write_file(folder / "train.txt", "a b\na c\n");
  write_file(folder / "valid.txt", "b\n");
  EXPECT_THAT(user_error([&] { open_text(folder.path(), kWords); }),
              AllOf(StartsWith((folder / "test.txt").string() + ": no such file; expected train.txt"),
                    HasSubstr("one file as --data-dir")));
  write_file(folder / "test.txt", "c d\n");
  const Corpus corpus = open_text(folder.path(), kWords);
  EXPECT_THAT(corpus.train, ElementsAre(1, 2, 3, 1, 4, 3));
  EXPECT_THAT(corpus.valid, ElementsAre(2, 3));
  EXPECT_THAT(corpus.test, ElementsAre(4, 0, 3));
  EXPECT_THAT(corpus.describe(),
              HasSubstr("6 training, 2 validation and 3 test tokens, of which 0.00, 0.00 and "
                        "33.33 % are <unk>, 5 words"));
  std::string text;
  for (int i = 0; i < 40; ++i) text += "the cat sat\n";
  write_file(folder / "one.txt", text);
  const Corpus one = open_text(folder / "one.txt", kCharacters);
  EXPECT_EQ(one.train.size() + one.valid.size() + one.test.size(), 40u * 12u);
  EXPECT_THAT(one.describe(), HasSubstr("9 characters"));  // of "the cat sat" 7, <eos>, <unk>
  write_file(folder / "tiny.txt", "abc\n");
  EXPECT_THAT(user_error([&] { open_text(folder / "tiny.txt", kWords); }), HasSubstr("nothing in it"));
  EXPECT_THAT(user_error([&] { open_text(folder / "none.txt", kWords); }), HasSubstr("none.txt"));
}

// Penn Treebank is such a text too, and has the same tokens.
TEST(RealPlainText, PennTreebank) {
  LOWTIDE_NEEDS_DATA(data_folder() / "ptb");
  ScratchFolder folder;
  for (const std::string part : {"train", "valid", "test"})
    std::filesystem::create_symlink(data_folder() / "ptb" / ("ptb." + part + ".txt"),
                                    folder / (part + ".txt"));
  const Corpus own = open_text(folder.path(), kWords), published = open_corpus("ptb", data_folder() / "ptb");
  EXPECT_EQ(own.vocabulary.size(), published.vocabulary.size());
  ASSERT_EQ(own.test.size(), published.test.size());
  for (std::size_t i = 0; i < own.test.size(); ++i)
    ASSERT_EQ(own.vocabulary.word(own.test[i]), published.vocabulary.word(published.test[i])) << i;
}

}  // namespace
}  // namespace lowtide::testing
