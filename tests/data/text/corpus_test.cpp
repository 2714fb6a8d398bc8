#include "lowtide/data/text/corpus.h"

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

TEST(Vocabulary, NumbersInOrderOfAppearance) {
  Vocabulary vocabulary;
  EXPECT_EQ(vocabulary.add("the"), 0);
  EXPECT_EQ(vocabulary.add("cat"), 1);
  EXPECT_EQ(vocabulary.add("the"), 0);
  EXPECT_EQ(vocabulary.size(), 2);
  EXPECT_EQ(vocabulary.word(1), "cat");
  EXPECT_EQ(vocabulary.find("cat"), 1);
  EXPECT_EQ(vocabulary.find("ca"), std::nullopt);
}

TEST(Corpus, EverySentenceEnds) {
  Vocabulary vocabulary;
  // Spaces at both ends and between, as in the files; an empty line; a last line without its end.
  const auto tokens = parse_training_text(" a  b a \n\n b c", "x", vocabulary);
  EXPECT_THAT(tokens, ElementsAre(0, 1, 0, 2, 2, 1, 3, 2));
  EXPECT_EQ(vocabulary.word(2), "<eos>");
  EXPECT_EQ(vocabulary.size(), 4);
}

TEST(Corpus, LineEndsOfWindows) {
  Vocabulary vocabulary;
  EXPECT_THAT(parse_training_text("a b\r\na\r\n", "x", vocabulary), ElementsAre(0, 1, 2, 0, 2));
}

TEST(Corpus, UnknownWords) {
  Vocabulary with, without;
  parse_training_text("a <unk> b\n", "train", with);
  EXPECT_THAT(parse_text("a z b\n", "valid", with), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(with.size(), 4);  // reading does not add
  parse_training_text("a b\n", "train", without);
  EXPECT_THAT(parse_text("b a\n", "valid", without), ElementsAre(1, 0, 2));
  EXPECT_THAT(user_error([&] { parse_text("a\nb zebra\n", "valid", without); }),
              StartsWith("valid:2: the word \"zebra\" is not in the training text"));
}

TEST(Corpus, NoText) {
  Vocabulary vocabulary;
  EXPECT_THAT(user_error([&] { parse_training_text("", "x", vocabulary); }), StartsWith("x: no words in it"));
  EXPECT_THAT(user_error([&] { parse_training_text(" \n\n", "x", vocabulary); }), HasSubstr("no words"));
  EXPECT_THAT(user_error([&] { parse_training_text(std::string("a\0b", 3), "x", vocabulary); }),
              StartsWith("x: holds a zero byte; expected plain text"));
}

TEST(Corpus, OpensBothLayouts) {
  ScratchFolder folder;
  for (const auto& [format, prefix, suffix] :
       {std::tuple{"ptb", "ptb.", ".txt"}, {"wikitext", "wiki.", ".tokens"}}) {
    write_file(folder / (std::string(prefix) + "train" + suffix), "a b\n");
    write_file(folder / (std::string(prefix) + "valid" + suffix), "b\n");
    EXPECT_THAT(user_error([&] { open_corpus(format, folder.path()); }),
                StartsWith((folder / (std::string(prefix) + "test" + suffix)).string() +
                           ": no such file; expected " + prefix + "train" + suffix));
    write_file(folder / (std::string(prefix) + "test" + suffix), "b a\na\n");
    const Corpus corpus = open_corpus(format, folder.path());
    EXPECT_THAT(corpus.train, ElementsAre(0, 1, 2));
    EXPECT_THAT(corpus.valid, ElementsAre(1, 2));
    EXPECT_THAT(corpus.test, ElementsAre(1, 0, 2, 0, 2));
    EXPECT_THAT(corpus.describe(), HasSubstr(": 3 training, 2 validation and 5 test tokens, 3 words"));
  }
  EXPECT_THAT(user_error([&] { open_corpus("text8", folder.path()); }),
              HasSubstr("text format 'text8' is not known; expected ptb or wikitext"));
}

// Sizes that papers on these data sets state.
TEST(RealCorpus, PennTreebank) {
  LOWTIDE_NEEDS_DATA(data_folder() / "ptb");
  const Corpus corpus = open_corpus("ptb", data_folder() / "ptb");
  EXPECT_EQ(corpus.train.size(), 929'589u);
  EXPECT_EQ(corpus.valid.size(), 73'760u);
  EXPECT_EQ(corpus.test.size(), 82'430u);
  EXPECT_EQ(corpus.vocabulary.size(), 10'000);
  EXPECT_EQ(corpus.vocabulary.word(0), "aer");
  EXPECT_EQ(corpus.vocabulary.word(24), "<eos>");  // the first line has 24 words
}

TEST(RealCorpus, WikiText2) {
  LOWTIDE_NEEDS_DATA(data_folder() / "wikitext-2");
  const Corpus corpus = open_corpus("wikitext", data_folder() / "wikitext-2");
  EXPECT_EQ(corpus.train.size(), 2'088'628u);
  EXPECT_EQ(corpus.valid.size(), 217'646u);
  EXPECT_EQ(corpus.test.size(), 245'569u);
  EXPECT_EQ(corpus.vocabulary.size(), 33'278);
}

}  // namespace
}  // namespace lowtide::testing
