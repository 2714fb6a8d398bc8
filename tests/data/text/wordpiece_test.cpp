#include "lowtide/data/text/wordpiece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lowtide/data/text/basic_tokenizer.h"
#include "lowtide/data/text/pair_encoding.h"
#include "lowtide/data/text/unicode.h"
#include "tests/data/image_files.h"
#include "tests/data/real_data.h"

namespace lowtide::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::string> words(std::string_view text, bool lower) {
  std::vector<std::string> result;
  for (const std::u32string& word : basic_words(text, lower)) result.push_back(encode_utf8(word));
  return result;
}

// The first five are the cases of BERT's own tests (tokenization_test.py).
TEST(BasicTokenizer, Cased) {
  EXPECT_THAT(words(" \tHeLLo!how  \n Are yoU?  ", false),
              ElementsAre("HeLLo", "!", "how", "Are", "yoU", "?"));
  EXPECT_THAT(words("ah\u535A\u63A8zz", false), ElementsAre("ah", "\u535A", "\u63A8", "zz"));
}

TEST(BasicTokenizer, Uncased) {
  EXPECT_THAT(words(" \tHeLLo!how  \n Are yoU?  ", true),
              ElementsAre("hello", "!", "how", "are", "you", "?"));
  EXPECT_THAT(words("H\u00E9llo", true), ElementsAre("hello"));
  EXPECT_THAT(words("He\u0301llo", true), ElementsAre("hello"));
  EXPECT_THAT(words("Straße Ærø", true), ElementsAre("straße", "ærø"));  // not accents: they stay
}

TEST(BasicTokenizer, WhiteSpaceAndWhatIsDropped) {
  // A space of every kind: no-break, ideographic, line separator, paragraph separator.
  EXPECT_THAT(words("a\u00A0b\u3000c\u2028d\u2029e\r\nf", false), ElementsAre("a", "b", "c", "d", "e", "f"));
  // Zero-width space and joiner, soft hyphen, byte order mark, bell, vertical tab, the replacement character,
  // a zero byte: all go without a trace, and a word is not cut there.
  const std::string text =
      std::string("a\u200Bb\u200Dc\u00ADd\uFEFFe\x07") + "f\x0B" + "g\uFFFDh" + '\0' + "i";
  EXPECT_THAT(words(text, false), ElementsAre("abcdefghi"));
  EXPECT_THAT(words("a\xFF\xC3(b\xE2\x82", false), ElementsAre("a", "(", "b"));  // bytes that are not UTF-8
  EXPECT_THAT(words("", false), ElementsAre());
  EXPECT_THAT(words(" \u200B ", false), ElementsAre());
  EXPECT_THAT(words("\u0301", true), ElementsAre());  // an accent of nothing
}

TEST(BasicTokenizer, EveryPunctuationCharacterIsAWord) {
  EXPECT_THAT(words("don't--stop...", false), ElementsAre("don", "'", "t", "-", "-", "stop", ".", ".", "."));
  EXPECT_THAT(words("a$b^c`d~e", false), ElementsAre("a", "$", "b", "^", "c", "`", "d", "~", "e"));
  EXPECT_THAT(words("«ça»、[UNK]", false), ElementsAre("«", "ça", "»", "、", "[", "UNK", "]"));
  EXPECT_THAT(words("5€±2", false), ElementsAre("5€±2"));  // symbols beyond ASCII are no punctuation
}

TEST(BasicTokenizer, KanaAndHangulAreWords) {
  EXPECT_THAT(words("ひらがなカナ漢字한국어", false), ElementsAre("ひらがなカナ", "漢", "字", "한국어"));
  EXPECT_THAT(words("\U00020000\uF900\U0002F800", false), ElementsAre("\U00020000", "\uF900", "\U0002F800"));
}

TEST(BasicTokenizer, LowerCaseOfWholeWords) {
  // A capital sigma at the end of a word, within one, alone; before an apostrophe that a letter follows.
  EXPECT_THAT(words("ΟΔΥΣΣΕΥΣ Σ ΣΑΣ'Α ΑΣ.", true), ElementsAre("οδυσσευς", "σ", "σασ", "'", "α", "ας", "."));
  EXPECT_THAT(words("İI \u01C4 Ⅷ", true), ElementsAre("ii", "\u01C6", "ⅷ"));
}

std::string small_vocabulary() {
  return "[PAD]\n[UNK]\n[CLS]\n[SEP]\nwant\n##want\n##ed\nwa\nun\nrunn\n##ing\n,\nα\n##β\nx\n##x\n";
}

WordPiece small() { return WordPiece(small_vocabulary(), "vocab.txt", true); }

TEST(WordPiece, LongestPiecesFromTheLeft) {
  const WordPiece pieces = small();
  EXPECT_THAT(pieces.encode("unwanted, running"), ElementsAre(8, 5, 6, 11, 9, 10));
  EXPECT_THAT(pieces.encode("wanted"), ElementsAre(4, 6));  // and not wa …
  EXPECT_THAT(pieces.encode("unwantedX running"), ElementsAre(8, 5, 6, 15, 9, 10));
  EXPECT_THAT(pieces.encode("unwantedq running"), ElementsAre(1, 9, 10));  // all of the word or nothing
  EXPECT_THAT(pieces.encode("ΑΒ αγ"), ElementsAre(12, 13, 1));
  EXPECT_THAT(pieces.encode(""), ElementsAre());
}

TEST(WordPiece, WordsOfMoreThan100Characters) {
  EXPECT_EQ(small().encode(std::string(100, 'x')).size(), 100u);
  EXPECT_THAT(small().encode(std::string(101, 'x')), ElementsAre(1));
  std::string letters;  // of two bytes: it is characters that count
  for (int i = 0; i < 100; ++i) letters += i == 0 ? "α" : "β";
  EXPECT_EQ(small().encode(letters).size(), 100u);
}

TEST(WordPiece, VocabulariesThatAreNone) {
  const auto error = [](const std::string& text) { return user_error([&] { WordPiece(text, "v", true); }); };
  EXPECT_THAT(error("a\nb\n"), StartsWith("v: no [PAD] in it; expected BERT's vocabulary, a piece a line"));
  EXPECT_THAT(error("[PAD]\n[UNK]\n[CLS]\n"), HasSubstr("no [SEP] in it"));
  EXPECT_THAT(error("[PAD]\na\n[PAD]\n"), StartsWith("v:3: the piece \"[PAD]\" for the second time"));
  EXPECT_THAT(error("[PAD]\n\na\n"), StartsWith("v:2: empty; expected a piece a line"));
  EXPECT_THAT(user_error([] { open_wordpiece("/no/such/vocab.txt", true); }), HasSubstr("no such file"));
  EXPECT_EQ(WordPiece("[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\nx\r\n", "v", true).encode("x"),
            std::vector<std::int32_t>{4});
}

TEST(PairEncoding, TypesAndSpecialPieces) {
  const EncodedPair pair = encode_pair(small(), {10, 11}, {12}, 128);
  EXPECT_THAT(pair.ids, ElementsAre(2, 10, 11, 3, 12, 3));
  EXPECT_THAT(pair.types, ElementsAre(0, 0, 0, 0, 1, 1));
  EXPECT_THAT(encode_pair(small(), {}, {}, 128).ids, ElementsAre(2, 3, 3));
}

TEST(PairEncoding, TheLongerIsCutFirst) {
  // Room for five: 5 and 3 become 4 and 3, 3 and 3, and of equals the second is cut: 3 and 2.
  EXPECT_THAT(encode_pair(small(), {4, 5, 6, 7, 8}, {9, 10, 11}, 8).ids,
              ElementsAre(2, 4, 5, 6, 3, 9, 10, 3));
  EXPECT_THAT(encode_pair(small(), {4}, {9, 10, 11, 12}, 6).ids, ElementsAre(2, 4, 3, 9, 10, 3));
  EXPECT_THAT(user_error([] { encode_pair(small(), {4}, {5}, 4); }),
              HasSubstr("pairs of at most 4 pieces; expected 5 or more"));
}

TEST(PairEncoding, PaddedToTheLongest) {
  const EncodedPair first = encode_pair(small(), {4}, {5}, 9), second = encode_pair(small(), {6, 7}, {8}, 9);
  const std::vector<const EncodedPair*> pairs = {&first, &second};
  const PairBatch batch = pad_pairs(small(), pairs);
  EXPECT_EQ(batch.batch, 2);
  EXPECT_EQ(batch.length, 6);
  EXPECT_THAT(batch.ids, ElementsAre(2, 4, 3, 5, 3, 0, 2, 6, 7, 3, 8, 3));
  EXPECT_THAT(batch.types, ElementsAre(0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1));
  EXPECT_THAT(batch.mask, ElementsAre(1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1));
}

struct Sentence {
  const char* language;
  const char* text;
  const char* pieces;                 // of the multilingual cased vocabulary
  std::vector<std::int32_t> cased;    // their numbers
  std::vector<std::int32_t> uncased;  // of the English uncased vocabulary
};

// A sentence of each language of XNLI. The numbers are those of a separate implementation in Python, which has
// Unicode tables of its own; the pieces were read by eye.
const std::vector<Sentence>& sentences() {
  static const std::vector<Sentence> kSentences = {
      {"ar",
       "أين تقع المكتبة القديمة؟",
       "أي ##ن تقع ال ##م ##كتب ##ة القديمة ؟",
       {19348, 10582, 19748, 59901, 10700, 52056, 10382, 46416, 756},
       {1270,  14498, 15915, 1273,  29834, 29830, 1270,  23673, 22192, 29835, 29817,
        29816, 19433, 1270,  23673, 29834, 15394, 14498, 22192, 19433, 100}},
      {"bg",
       "Къде е старата библиотека?",
       "К ##ъд ##е е ст ##ара ##та библиотека ?",
       {519, 76475, 10205, 546, 15888, 16682, 10367, 41147, 136},
       {1189,  29755, 29742, 15290, 1185,  1196,  22919, 10260, 16856, 10260, 22919,
        10260, 1181,  10325, 29740, 29436, 10325, 14150, 22919, 15290, 28598, 1029}},
      {"de",
       "Wo ist die alte Bücherei für Überseeschiffe?",
       "Wo ist die alte Bücher ##ei für Über ##see ##schiff ##e ?",
       {102204, 10298, 10128, 18181, 46275, 11998, 10307, 20560, 20262, 48058, 10112, 136},
       {24185, 21541, 3280, 12456, 2063, 20934, 7474, 7416, 6519, 19169, 19763, 11624, 13355, 2063, 1029}},
      {"el",
       "Πού είναι η παλιά ΒΙΒΛΙΟΘΗΚΗ ΤΗΣ ΠΌΛΗΣ;",
       "Π ##ού είναι η π ##α ##λιά Β ##Ι ##Β ##Λ ##Ι ##Ο ##Θ ##Η ##Κ ##Η Τ ##Η ##Σ Π ##Ό ##Λ ##Η ##Σ ;",
       {452,    30603,  11476, 471,    480, 13140,  64849, 438, 111038, 111032, 111039, 111038, 111043,
        111037, 111036, 48660, 111036, 455, 111036, 85362, 452, 111028, 111039, 111036, 85362,  132},
       {1170,  26789, 1159, 18199, 16177, 14608, 18199, 1161,  1170,  14608,
        29727, 27432, 1156, 18199, 29720, 29727, 18199, 29730, 29725, 24824,
        29726, 24824, 1174, 29155, 1170,  29730, 29727, 29155, 1025}},
      {"en",
       "Where's the old library, please?",
       "Where ' s the old library , pl ##eas ##e ?",
       {23525, 112, 187, 10105, 12898, 23187, 117, 20648, 42658, 10112, 136},
       {2073, 1005, 1055, 1996, 2214, 3075, 1010, 3531, 1029}},
      {"es",
       "¿Dónde está la biblioteca más pequeña?",
       "¿ D ##ón ##de está la biblioteca más pequeña ?",
       {224, 141, 11482, 10253, 11559, 10109, 34297, 10543, 31630, 136},
       {1094, 2123, 3207, 9765, 2050, 2474, 12170, 16558, 25185, 19281, 16137, 21877, 4226, 2532, 1029}},
      {"fr",
       "Où est l'ancienne bibliothèque ?",
       "O ##ù est l ' ancienne bibliothèque ?",
       {152, 13580, 10176, 180, 112, 20201, 59753, 136},
       {15068, 9765, 1048, 1005, 2019, 23402, 10087, 12170, 16558, 25185, 5369, 4226, 1029}},
      {"hi",
       "पुराना पुस्तकालय कहाँ है?",
       "प ##ुरा ##ना पुस्तक ##ालय कहा ##ँ है ?",
       {885, 77476, 16380, 74906, 34059, 31608, 28462, 10569, 136},
       {1328, 29869, 29876, 29863, 29876, 1328, 29874, 29859, 29851, 29876, 29870, 29868, 1315, 29875, 29876,
        1339, 1029}},
      {"ru",
       "Где находится ещё одна библиотека?",
       "Г ##де находится ещё одна библиотека ?",
       {512, 12265, 17152, 16072, 22164, 41147, 136},
       {1183,  29742, 15290, 1192,  10260, 29750, 14150, 29742, 10325, 22919, 29747, 17432, 1185,  29754,
        15290, 1193,  29742, 19865, 1181,  10325, 29740, 29436, 10325, 14150, 22919, 15290, 28598, 1029}},
      {"sw",
       "Maktaba ya zamani iko wapi?",
       "Ma ##kta ##ba ya zaman ##i iko wa ##pi ?",
       {13744, 26988, 10537, 10549, 19130, 10116, 13152, 11471, 12675, 136},
       {5003, 25509, 19736, 8038, 23564, 20799, 20912, 2080, 11333, 8197, 1029}},
      {"th",
       "ห้องสมุดเก่าอยู่ที่ไหน",
       "ห ##้อง ##ส ##ม ##ุ ##ด ##เ ##ก ##่า ##อย ##ู่ที่ ##ไ ##ห ##น",
       {1434, 75784, 28767, 17405, 53936, 22123, 111431, 18427, 38999, 100145, 93432, 111435, 111424, 16000},
       {100}},
      {"tr",
       "İstanbul'daki eski kütüphane nerede?",
       "İstanbul ' daki eski k ##üt ##üp ##hane nere ##de ?",
       {19745, 112, 32552, 27729, 179, 41559, 99085, 53437, 71081, 10253, 136},
       {9960, 1005, 4830, 3211, 9686, 3211, 13970, 8525, 21890, 2638, 11265, 5596, 2063, 1029}},
      {"ur",
       "پرانی لائبریری کہاں ہے؟",
       "پر ##انی لا ##ئب ##ری ##ری کہا ##ں ہے ؟",
       {12190, 16163, 13879, 52054, 15436, 15436, 47711, 13185, 10861, 756},
       {1302, 17149, 18511, 24830, 1294, 25573, 14498, 29816, 17149, 24830, 17149, 24830, 1304, 29845, 25573,
        29843, 1308, 29846, 100}},
      {"vi",
       "Thư viện cũ ở đâu?",
       "Th ##ư viện cũ ở đ ##âu ?",
       {51635, 28776, 27805, 52994, 1682, 299, 28345, 136},
       {16215, 2226, 20098, 2078, 12731, 1051, 1102, 4887, 1029}},
      {"zh",
       "旧图书馆在哪里？共3层。",
       "旧 图 书 馆 在 哪 里 ？ 共 3 层 。",
       {4350, 3015, 2138, 8502, 3031, 2869, 7906, 10083, 2456, 124, 3485, 1882},
       {100, 100, 100, 100, 100, 100, 1962, 1994, 100, 1017, 100, 1636}},
  };
  return kSentences;
}

TEST(RealWordPiece, FifteenLanguages) {
  const auto folder = data_folder() / "vocab";
  LOWTIDE_NEEDS_DATA(folder);
  const WordPiece cased = open_wordpiece(folder / "bert-base-multilingual-cased" / "vocab.txt", false);
  const WordPiece uncased = open_wordpiece(folder / "bert-base-uncased" / "vocab.txt", true);
  EXPECT_EQ(cased.vocabulary().size(), 119'547);
  EXPECT_EQ(uncased.vocabulary().size(), 30'522);
  EXPECT_EQ(uncased.classifier(), 101);
  for (const Sentence& sentence : sentences()) {
    const auto ids = cased.encode(sentence.text);
    std::string pieces;
    for (const std::int32_t id : ids) pieces += (pieces.empty() ? "" : " ") + cased.vocabulary().word(id);
    EXPECT_EQ(pieces, sentence.pieces) << sentence.language;
    EXPECT_EQ(ids, sentence.cased) << sentence.language;
    EXPECT_EQ(uncased.encode(sentence.text), sentence.uncased) << sentence.language;
  }
}

}  // namespace
}  // namespace lowtide::testing
