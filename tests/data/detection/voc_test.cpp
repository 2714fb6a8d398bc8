#include "lowtide/data/detection/voc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lowtide/data/decode.h"
#include "lowtide/data/detection/average_precision.h"
#include "tests/data/image_files.h"
#include "tests/data/real_data.h"
#include "tests/io/scratch.h"

namespace lowtide::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string object(const std::string& name, const std::string& edges, const std::string& more = "") {
  std::string box;
  std::size_t at = 0;
  for (const char* edge : {"xmin", "ymin", "xmax", "ymax"}) {
    const std::size_t end = edges.find(' ', at);
    box += std::string("<") + edge + ">" + edges.substr(at, end - at) + "</" + edge + ">";
    at = end + 1;
  }
  return "<object><name>" + name + "</name>" + more + "<bndbox>" + box + "</bndbox></object>\n";
}

std::string annotation(const std::string& objects,
                       const std::string& size = "<width>12</width>\n<height>8</height>") {
  return "<annotation>\n<folder>VOC2012</folder>\n<size>" + size + "<depth>3</depth></size>\n" + objects +
         "</annotation>\n";
}

std::string error_of(const std::string& xml) {
  return user_error([&] { parse_voc_annotation(xml, "x.xml"); });
}

TEST(VocAnnotation, ReadsObjects) {
  const auto read = parse_voc_annotation(
      annotation(
          object("person", "1 2 12 8", "<pose>Left</pose><truncated>1</truncated><difficult>0</difficult>") +
          object(" tvmonitor\n", "3 3 3 3", "<difficult>1</difficult>") +
          object("aeroplane", "2.5 1 4.25 7")),
      "x.xml");
  EXPECT_EQ(read.width, 12);
  EXPECT_EQ(read.height, 8);
  ASSERT_EQ(read.objects.size(), 3u);
  EXPECT_EQ(read.objects[0].class_name, "person");
  EXPECT_EQ(read.objects[0].box, (BoundingBox{0, 1, 12, 8}));
  EXPECT_TRUE(read.objects[0].truncated);
  EXPECT_FALSE(read.objects[0].difficult);
  EXPECT_EQ(read.objects[1].class_name, "tvmonitor");
  EXPECT_EQ(read.objects[1].box, (BoundingBox{2, 2, 3, 3}));  // one pixel
  EXPECT_TRUE(read.objects[1].difficult);
  EXPECT_EQ(read.objects[2].class_name, "aeroplane");
  EXPECT_EQ(read.objects[2].box, (BoundingBox{1.5, 0, 4.25, 7}));
}

TEST(VocAnnotation, PartsAreNoObjects) {
  const std::string part =
      "<part><name>head</name><bndbox><xmin>5</xmin><ymin>5</ymin><xmax>6</xmax><ymax>6</ymax></bndbox></"
      "part>";
  for (const bool before : {true, false}) {
    std::string with_part = object("person", "1 2 10 8");
    with_part.insert(before ? std::string("<object>").size() : with_part.rfind("</object>"), part);
    const auto read = parse_voc_annotation(annotation(with_part), "x.xml");
    ASSERT_EQ(read.objects.size(), 1u);
    EXPECT_EQ(read.objects[0].class_name, "person");
    EXPECT_EQ(read.objects[0].box, (BoundingBox{0, 1, 10, 8}));
  }
}

TEST(VocAnnotation, NoObjectsAndBoxesAtTheEdge) {
  EXPECT_TRUE(parse_voc_annotation(annotation(""), "x.xml").objects.empty());
  // Pixel 0 does not exist, nor does 13 of 12: both are cut.
  const auto read = parse_voc_annotation(annotation(object("cat", "0 1 13 8")), "x.xml");
  EXPECT_EQ(read.objects[0].box, (BoundingBox{0, 0, 12, 8}));
}

TEST(VocAnnotation, WhatIsWrongIsSaidWithItsLine) {
  EXPECT_THAT(error_of(""), HasSubstr("x.xml:1: not XML: no element found"));
  EXPECT_THAT(error_of("not xml"), HasSubstr("x.xml:1: not XML: syntax error"));
  EXPECT_THAT(error_of(annotation(object("cat", "1 1 2 2")).substr(0, 120)), StartsWith("x.xml:"));
  EXPECT_THAT(error_of("<html/>"), StartsWith("x.xml: no size of an image"));
  EXPECT_THAT(error_of(annotation("", "<width>12</width>")), StartsWith("x.xml: no size of an image"));
  EXPECT_THAT(error_of(annotation("", "<width>0</width><height>8</height>")),
              StartsWith("x.xml:3: a side of \"0\""));
  EXPECT_THAT(error_of(annotation(object("two\nlines", "1 1 2 2"))),
              StartsWith("x.xml:6: a class named \"two\\nlines\"; expected a name in one line"));
  EXPECT_THAT(error_of(annotation(object("", "1 1 2 2"))), StartsWith("x.xml:5: a class named \"\""));
  EXPECT_THAT(error_of(annotation(object("cat", "5 1 4 8"))),
              StartsWith("x.xml:5: a box from 5, 1 to 4, 8; expected one in an image of 12x8"));
  EXPECT_THAT(error_of(annotation(object("cat", "13 1 20 8"))),
              HasSubstr("expected one in an image of 12x8"));
  EXPECT_THAT(error_of(annotation(object("cat", "x 1 4 8"))),
              StartsWith("x.xml:5: an edge of a box at \"x\""));
  EXPECT_THAT(error_of(annotation(object("cat", "nan 1 4 8"))),
              StartsWith("x.xml:5: an edge of a box at \"nan\""));
  EXPECT_THAT(error_of(annotation(object("cat", "1 1 4 8", "<difficult>2</difficult>"))),
              HasSubstr("a mark of \"2\"; expected 0 or 1"));
  EXPECT_THAT(error_of(annotation("<object><name>cat</name></object>")),
              StartsWith("x.xml:5: an object without a name or a whole box"));
  // The name of one object is not that of the next.
  std::string nameless = object("cat", "1 1 2 2");
  nameless.erase(8, std::string("<name>cat</name>").size());
  EXPECT_THAT(error_of(annotation(object("cat", "1 1 2 2") + nameless)),
              StartsWith("x.xml:6: an object without a name"));
  EXPECT_THAT(error_of("<!DOCTYPE a [<!ENTITY b \"bb\">]>\n" + annotation("")),
              StartsWith("x.xml:1: a DOCTYPE"));
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "<a>";
  EXPECT_THAT(error_of(annotation(deep)), StartsWith("x.xml:5: nested more than 32 levels deep"));
}

TEST(VocImageSet, OneNameALine) {
  const auto parse = [](const std::string& text) {
    return parse_voc_image_set(lines_of_text(text, "train.txt"));
  };
  EXPECT_THAT(parse("2008_1\r\n2008_2\r\n"), ::testing::ElementsAre("2008_1", "2008_2"));
  const auto error = [&](const std::string& text) { return user_error([&] { parse(text); }); };
  EXPECT_THAT(error(""), StartsWith("train.txt: empty"));
  EXPECT_THAT(error("a\n../b\n"), StartsWith("train.txt:2: \"../b\"; expected the name of an image"));
  EXPECT_THAT(error("a -1\n"), StartsWith("train.txt:1: \"a -1\""));  // the list of a class
  EXPECT_THAT(error("a\nb\na\n"), StartsWith("train.txt:3: \"a\" for the second time"));
}

void write_voc(const std::filesystem::path& folder) {
  write_file(folder / "ImageSets/Main/train.txt", "one\ntwo\n");
  write_file(folder / "Annotations/one.xml", annotation(object("dog", "1 1 5 5")));
  write_file(folder / "Annotations/two.xml", annotation(""));
  write_file(folder / "JPEGImages/one.jpg", encode_jpeg(gradient_image(8, 12, 3)));
  write_file(folder / "JPEGImages/two.jpg", encode_jpeg(gradient_image(8, 12, 1)));
}

TEST(VocDataset, OpensAFolder) {
  ScratchFolder folder;
  write_voc(folder / "VOC2012");
  for (const auto& place : {folder.path(), folder / "VOC2012"}) {
    const VocDataset dataset(place, "train");
    ASSERT_EQ(dataset.size(), 2);
    EXPECT_EQ(dataset.name(1), "two");
    EXPECT_EQ(dataset.annotation(0).objects.at(0).label, 11);
    EXPECT_EQ(dataset.image(0).width, 12);
    EXPECT_EQ(dataset.image(1).channels, 3);
    EXPECT_THAT(dataset.describe(), HasSubstr("VOC2012, train: 2 images, 1 objects of 20 classes"));
  }
}

TEST(VocDataset, WhatIsMissingIsNamed) {
  ScratchFolder folder;
  const auto error = [&](const std::string& set) {
    return user_error([&] { VocDataset(folder.path(), set); });
  };
  EXPECT_THAT(error("train"), HasSubstr(": no Annotations in it, nor in a VOC2012"));
  write_voc(folder.path());
  EXPECT_THAT(error("val"), AllOf(HasSubstr("ImageSets/Main/val.txt"), HasSubstr("no such file")));
  std::filesystem::remove(folder / "JPEGImages/two.jpg");
  EXPECT_THAT(error("train"), StartsWith((folder / "JPEGImages/two.jpg").string() +
                                         ": no such image; expected since train.txt"));
  std::filesystem::remove(folder / "Annotations/two.xml");
  EXPECT_THAT(error("train"), AllOf(HasSubstr("Annotations/two.xml"), HasSubstr("no such file")));
}

TEST(VocDataset, TheFirstOfASet) {
  ScratchFolder folder;
  write_voc(folder.path());
  const VocDataset all(folder.path(), "train"), first(folder.path(), "train:1");
  ASSERT_EQ(first.size(), 1);
  EXPECT_EQ(first.name(0), all.name(0));
  const auto error = [&](const std::string& set) {
    return user_error([&] { VocDataset(folder.path(), set); });
  };
  EXPECT_THAT(error("train:99"), AllOf(HasSubstr("train.txt"), HasSubstr("expected the 99 of train:99")));
  for (const std::string wrong : {"train:", "train:0", "train:-1", "train:1x"})
    EXPECT_THAT(error(wrong), AllOf(HasSubstr(wrong), HasSubstr("as in train:16"))) << wrong;
}

TEST(VocDataset, ImagesAreAsAnnotated) {
  ScratchFolder folder;
  write_voc(folder.path());
  write_file(folder / "JPEGImages/one.jpg", encode_jpeg(gradient_image(12, 8, 3)));
  write_file(folder / "JPEGImages/two.jpg", "damaged");
  const VocDataset dataset(folder.path(), "train");
  EXPECT_THAT(user_error([&] { dataset.image(0); }),
              StartsWith((folder / "JPEGImages/one.jpg").string() +
                         ": 8x12 pixels; expected 12x8 as its annotation says"));
  EXPECT_THAT(user_error([&] { dataset.image(1); }), HasSubstr("two.jpg: neither a JPEG nor a PNG"));
}

// Blood cells in VOC's layout.
void write_cells(const std::filesystem::path& folder) {
  write_file(folder / "ImageSets/Main/train.txt", "one\ntwo\n");
  write_file(folder / "ImageSets/Main/val.txt", "three\n");
  write_file(folder / "Annotations/one.xml", annotation(object("WBC", "1 1 5 5") + object("RBC", "2 2 4 4")));
  write_file(folder / "Annotations/two.xml", annotation(object("Platelets", "1 1 5 5")));
  write_file(folder / "Annotations/three.xml", annotation(object("RBC", "1 1 5 5")));
  write_file(folder / "JPEGImages/one.jpg", encode_jpeg(gradient_image(8, 12, 3)));
  write_file(folder / "JPEGImages/two.png", encode_png(gradient_image(8, 12, 3)));
  write_file(folder / "JPEGImages/three.webp", encode_webp(gradient_image(8, 12, 3)));
}

TEST(VocDataset, ClassesOfItsOwn) {
  ScratchFolder folder;
  write_cells(folder.path());
  const VocDataset train(folder.path(), "train");
  EXPECT_THAT(train.classes(), ::testing::ElementsAre("Platelets", "RBC", "WBC"));
  EXPECT_EQ(train.annotation(0).objects.at(0).label, 2);
  EXPECT_EQ(train.annotation(0).objects.at(1).label, 1);
  EXPECT_EQ(train.annotation(1).objects.at(0).label, 0);
  EXPECT_EQ(train.image(1).width, 12) << "a PNG";
  EXPECT_THAT(train.describe(), HasSubstr("2 images, 3 objects of 3 classes"));
  const VocDataset test(folder.path(), "val", {train.classes()});
  EXPECT_EQ(test.annotation(0).objects.at(0).label, 1);
  EXPECT_EQ(test.image(0).height, 8) << "a WebP";
  // In another order, and with one that does not occur.
  const VocDataset named(folder.path(), "train", {{"WBC", "RBC", "Sickle", "Platelets"}});
  EXPECT_EQ(named.annotation(0).objects.at(0).label, 0);
  EXPECT_EQ(named.annotation(1).objects.at(0).label, 3);
}

TEST(VocDataset, AClassThatIsNotExpectedIsNamed) {
  ScratchFolder folder;
  write_cells(folder.path());
  EXPECT_THAT(
      user_error([&] {
        VocDataset(folder.path(), "val", {{"WBC", "Platelets"}});
      }),
      AllOf(StartsWith((folder / "Annotations/three.xml").string() + ":5: class \"RBC\"; expected one of"),
            HasSubstr("--classes"), HasSubstr("WBC, Platelets")));
}

TEST(VocDataset, SomeOfVocsClassesAreVocs) {
  ScratchFolder folder;
  write_voc(folder.path());
  EXPECT_EQ(VocDataset(folder.path(), "train").classes(), voc_classes());
  EXPECT_EQ(VocDataset(folder.path(), "train", {{"dog"}}).annotation(0).objects.at(0).label, 0);
}

TEST(VocDataset, DamagedImagesMayBeLeftOut) {
  ScratchFolder folder;
  write_cells(folder.path());
  write_file(folder / "ImageSets/Main/train.txt",
             "one\nbad_xml\ntwo\nno_image\nbad_image\nother_size\nthree\n");
  write_file(folder / "Annotations/bad_xml.xml", "<annotation>");
  for (const std::string name : {"no_image", "bad_image", "other_size"})
    write_file(folder / ("Annotations/" + name + ".xml"), annotation(object("Rare", "1 1 5 5")));
  write_file(folder / "JPEGImages/bad_xml.jpg", encode_jpeg(gradient_image(8, 12, 3)));
  write_file(folder / "JPEGImages/bad_image.jpg", encode_jpeg(gradient_image(8, 12, 3)).substr(0, 300));
  write_file(folder / "JPEGImages/other_size.jpg", encode_jpeg(gradient_image(9, 12, 3)));
  EXPECT_THAT(user_error([&] { VocDataset(folder.path(), "train"); }), HasSubstr("bad_xml.xml"));
  const VocDataset data(folder.path(), "train", {{}, /*skip_damaged=*/true});
  ASSERT_EQ(data.size(), 3);
  EXPECT_EQ(data.name(0) + data.name(1) + data.name(2), "onetwothree");
  EXPECT_THAT(data.classes(), ::testing::ElementsAre("Platelets", "RBC", "WBC"))
      << "not those of what is left out";
  EXPECT_THAT(data.damaged(),
              ::testing::ElementsAre(HasSubstr("bad_xml.xml:"), HasSubstr("no_image.jpg: no such image"),
                                     HasSubstr("bad_image.jpg: damaged JPEG"),
                                     HasSubstr("other_size.jpg: 12x9 pixels; expected 12x8")));
  EXPECT_THAT(data.describe(), HasSubstr("4 damaged images left out"));
  write_file(folder / "ImageSets/Main/train.txt", "bad_image\n");
  EXPECT_THAT(user_error([&] {
                VocDataset(folder.path(), "train", {{}, true});
              }),
              HasSubstr("all images are damaged, the first: "));
}

// A camera held upright stores its picture lying, with EXIF's orientation 6. Some tools annotate what is seen, some what
// is stored.
TEST(VocDataset, TheAnnotationSaysWhichOrientationIsMeant) {
  ScratchFolder folder;
  write_voc(folder.path());
  const Image stored = gradient_image(8, 12, 3);
  const std::string plain = encode_jpeg(stored), turned = with_orientation(plain, 6);
  for (const char* name : {"one", "two"})
    write_file(folder / ("JPEGImages/" + std::string(name) + ".jpg"), turned);
  write_file(folder / "Annotations/two.xml", annotation("", "<width>8</width><height>12</height>"));
  const VocDataset data(folder.path(), "train");
  EXPECT_EQ(data.image(0).pixels, decode_image(bytes_of(plain), "plain").pixels);
  EXPECT_EQ(data.image(1).pixels, decode_image(bytes_of(turned), "turned").pixels);
  EXPECT_EQ(data.image(1).height, 12);
}

// Counts that another XML library gives.
TEST(RealVoc, TrainAndVal) {
  const auto folder = data_folder() / "VOCdevkit";
  LOWTIDE_NEEDS_DATA(folder);
  int objects = 0, difficult = 0, truncated = 0, persons = 0, without = 0;
  for (const auto& [set, size] : {std::pair{"train", 160}, {"val", 80}}) {
    const VocDataset dataset(folder, set);
    ASSERT_EQ(dataset.size(), size);
    std::vector<GroundTruth> truth;
    std::vector<Detection> detections;
    for (std::int64_t i = 0; i < dataset.size(); ++i) {
      const Image image = dataset.image(i);
      EXPECT_EQ(image.channels, 3);
      without += dataset.annotation(i).objects.empty();
      for (const VocObject& found : dataset.annotation(i).objects) {
        ++objects;
        difficult += found.difficult;
        truncated += found.truncated;
        persons += found.label == 14;
        truth.push_back({i, found.label, found.box, found.difficult});
        detections.push_back({i, found.label, 0.5f, found.box});
      }
    }
    // A detector that knows the answers is right wherever there is something to be right about.
    for (const PrecisionForm form : {PrecisionForm::kArea, PrecisionForm::kElevenPoints}) {
      const auto precisions = average_precisions(detections, truth, 20, form);
      for (const double precision : precisions) EXPECT_DOUBLE_EQ(precision, 1);
    }
  }
  EXPECT_EQ(objects, 690);
  EXPECT_EQ(difficult, 83);
  EXPECT_EQ(truncated, 350);
  EXPECT_EQ(persons, 226);
  EXPECT_EQ(without, 1);
}

}  // namespace
}  // namespace lowtide::testing
