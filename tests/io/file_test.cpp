#include "lowtide/io/file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>

#include "tests/io/scratch.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

// While it lives, no file of this process can grow past `bytes`: a full disk without filling one.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &old_limit_);
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, old_limit_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_limit_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_limit_{};
  void (*old_handler_)(int) = nullptr;
};

TEST(ReadFile, ReturnsWhatWasWritten) {
  const ScratchFolder folder;
  for (const std::size_t size : {0, 1, 4095, 65536, 300000}) {
    const std::string text(size, 'x');
    write_atomically(folder / "file", text);
    EXPECT_EQ(read_text_file(folder / "file"), text);
    EXPECT_EQ(text_of(read_file(folder / "file")), text);
  }
}

TEST(ReadFile, ReadsAFileThatDoesNotTellItsSize) {
  EXPECT_TRUE(contains(read_text_file("/proc/self/status"), "Pid:"));
}

TEST(ReadFile, SaysWhatIsWrong) {
  const ScratchFolder folder;
  write_atomically(folder / "file", "abc");
  EXPECT_TRUE(
      contains(user_error([&] { read_file(folder / "none"); }), (folder / "none").string(), "no such file"));
  EXPECT_TRUE(contains(user_error([&] { read_file(folder.path()); }), "it is a folder"));
  EXPECT_TRUE(contains(user_error([&] { read_file(folder / "file/below"); }), "is a file, not a folder"));
}

TEST(ReadFile, SaysThatPermissionIsMissing) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const ScratchFolder folder;
  write_atomically(folder / "file", "abc");
  std::filesystem::permissions(folder / "file", std::filesystem::perms::none);
  EXPECT_TRUE(contains(user_error([&] { read_file(folder / "file"); }), "permission denied"));
}

TEST(ReadFile, BoundsTheSize) {
  const ScratchFolder folder;
  write_atomically(folder / "file", "abc");
  EXPECT_EQ(read_file(folder / "file", 3).size(), 3u);
  EXPECT_TRUE(contains(user_error([&] { read_file(folder / "file", 2); }), "more than the 2 bytes"));
  EXPECT_TRUE(contains(user_error([&] { read_file("/proc/self/status", 10); }), "more than the 10 bytes"));
}

TEST(ReadFile, TakesRegularFilesAlone) {
  const ScratchFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const std::string& path : {std::string("/dev/zero"), (folder / "pipe").string()}) {
    EXPECT_TRUE(contains(user_error([&] { read_file(path); }), path, "not a regular file"))
        << "and nothing is waited for";
  }
  EXPECT_TRUE(contains(user_error([&] { read_file("/proc/self/mem"); }), "cannot read /proc/self/mem"));
}

TEST(WriteAll, ReportsAFullDisk) {
  const FileDescriptor full = open_for_writing("/dev/full", 0);
  EXPECT_TRUE(contains(user_error([&] { write_all(full, bytes_of("abc"), "/dev/full"); }), "/dev/full",
                       "No space left on device", "free some space"));
  write_all(full, {}, "/dev/full");
}

TEST(AppendWhole, LeavesNoPartOfWhatDidNotFit) {
  const ScratchFolder folder;
  const FileDescriptor file = open_for_writing(folder / "log", O_APPEND);
  append_whole(file, bytes_of("first\n"), folder / "log");
  {
    const FileSizeLimit limit(10);
    EXPECT_TRUE(
        contains(user_error([&] { append_whole(file, bytes_of("second, too long\n"), folder / "log"); }),
                 "File too large"));
  }
  append_whole(file, bytes_of("third\n"), folder / "log");
  EXPECT_EQ(read_text_file(folder / "log"), "first\nthird\n");
}

TEST(WriteAtomically, WritesPiecesInOrder) {
  const ScratchFolder folder;
  const std::array<ByteSpan, 3> pieces{bytes_of("one "), bytes_of(""), bytes_of("two")};
  write_atomically(folder / "file", pieces);
  EXPECT_EQ(read_text_file(folder / "file"), "one two");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(WriteAtomically, AcceptsAPathWithoutAFolder) {
  const ScratchFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  write_atomically("file", "abc");
  std::filesystem::current_path(before);
  EXPECT_EQ(read_text_file(folder / "file"), "abc");
}

TEST(WriteAtomically, AcceptsTheLongestName) {
  const ScratchFolder folder;
  const std::string name(255, 'n');
  write_atomically(folder / name, "abc");
  EXPECT_EQ(read_text_file(folder / name), "abc");
}

TEST(WriteAtomically, KeepsTheOldFileWhenTheDiskIsFull) {
  const ScratchFolder folder;
  write_atomically(folder / "file", "old");
  {
    const FileSizeLimit limit(1000);
    const std::string message =
        user_error([&] { write_atomically(folder / "file", std::string(5000, 'x')); });
    EXPECT_TRUE(contains(message, (folder / "file").string(), "File too large"));
  }
  EXPECT_EQ(read_text_file(folder / "file"), "old");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(WriteAtomically, KeepsTheOldFileWhenTheProducerThrows) {
  const ScratchFolder folder;
  write_atomically(folder / "file", "old");
  const auto produce = [](FileWriter& writer) {
    writer.write("half of the new");
    throw std::runtime_error("producer");
  };
  EXPECT_THROW(write_atomically(folder / "file", produce), std::runtime_error);
  EXPECT_EQ(read_text_file(folder / "file"), "old");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(WriteAtomically, SaysWhatIsWrong) {
  const ScratchFolder folder;
  write_atomically(folder / "file", "abc");
  std::filesystem::create_directory(folder / "folder");
  EXPECT_TRUE(contains(user_error([&] { write_atomically(folder / "none/file", "x"); }),
                       "its folder does not exist"));
  EXPECT_TRUE(
      contains(user_error([&] { write_atomically(folder / "file/below", "x"); }), "is a file, not a folder"));
  EXPECT_TRUE(
      contains(user_error([&] { write_atomically(folder / "folder", "x"); }), "a folder of that name"));
  EXPECT_TRUE(
      contains(user_error([&] { write_atomically("/proc/lowtide", "x"); }), "cannot write /proc/lowtide"));
  EXPECT_EQ(folder.entries(), 2u);
}

TEST(WriteAtomically, FollowsALink) {
  const ScratchFolder folder, elsewhere;
  write_atomically(elsewhere / "file", "old");
  fs::create_symlink(elsewhere / "file", folder / "link");
  fs::create_symlink("link", folder / "link-to-link");
  fs::create_symlink("nothing yet", folder / "to-nothing");
  write_atomically(folder / "link-to-link", "new");
  write_atomically(folder / "to-nothing", "made");
  EXPECT_EQ(read_text_file(elsewhere / "file"), "new");
  EXPECT_EQ(read_text_file(folder / "nothing yet"), "made");
  for (const char* link : {"link", "link-to-link", "to-nothing"})
    EXPECT_TRUE(fs::is_symlink(folder / link)) << link;
  EXPECT_EQ(elsewhere.entries(), 1u);
  EXPECT_EQ(folder.entries(), 4u);
}

TEST(WriteAtomically, ALoopOfLinksIsTold) {
  const ScratchFolder folder;
  fs::create_symlink("b", folder / "a");
  fs::create_symlink("a", folder / "b");
  EXPECT_TRUE(contains(user_error([&] { write_atomically(folder / "a", "x"); }), (folder / "a").string(),
                       "Too many levels of symbolic links"));
  EXPECT_TRUE(fs::is_symlink(folder / "a"));
}

TEST(WriteAtomically, KeepsThePermissionsOfTheOldFile) {
  const ScratchFolder folder;
  for (const mode_t mode : {0600, 0640, 0444}) {
    write_atomically(folder / "file", "old");
    ASSERT_EQ(::chmod((folder / "file").c_str(), mode), 0);
    write_atomically(folder / "file", "new");
    EXPECT_EQ(read_text_file(folder / "file"), "new");
    struct stat status {};
    ASSERT_EQ(::stat((folder / "file").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, mode);
  }
}

TEST(WriteAtomically, WritesThroughAPipe) {
  const ScratchFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", folder / "link");
  std::string seen;
  std::thread reader([&] {
    std::ifstream pipe(folder / "pipe");
    seen.assign(std::istreambuf_iterator<char>(pipe), {});
  });
  write_atomically(folder / "link", std::string(200000, 'x'));
  reader.join();
  EXPECT_EQ(seen, std::string(200000, 'x'));
  EXPECT_TRUE(fs::is_fifo(folder / "pipe"));
  EXPECT_EQ(folder.entries(), 2u);
}

TEST(WriteAtomically, RefusesASocket) {
  const ScratchFolder folder;
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string path = folder / "socket";
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  path.copy(address.sun_path, path.size());
  ASSERT_EQ(::bind(socket.number(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_TRUE(contains(user_error([&] { write_atomically(path, "x"); }), path, "it is a socket"));
  EXPECT_TRUE(fs::is_socket(path));
}

// Nodes of the test's own: those of the machine are not risked.
TEST(WriteAtomically, LeavesADeviceADevice) {
  const ScratchFolder folder;
  const auto make = [&](const char* name, mode_t kind, unsigned minor) {
    return ::mknod((folder / name).c_str(), kind | 0600, ::makedev(1, minor)) == 0;
  };
  if (!make("null", S_IFCHR, 3) || !make("full", S_IFCHR, 7) || !make("disk", S_IFBLK, 0))
    GTEST_SKIP() << "only root may make a device node";
  try {
    open_for_writing(folder / "null", 0);
  } catch (const UserError& error) {
    GTEST_SKIP() << "devices cannot be opened here: " << error.what();
  }
  write_atomically(folder / "null", "swallowed");
  EXPECT_TRUE(fs::is_character_file(folder / "null"));
  EXPECT_TRUE(
      contains(user_error([&] { write_atomically(folder / "full", "x"); }), "No space left on device"));
  EXPECT_TRUE(fs::is_character_file(folder / "full"));
  EXPECT_TRUE(contains(user_error([&] { write_atomically(folder / "disk", "x"); }), "it is a disk"));
  EXPECT_TRUE(fs::is_block_file(folder / "disk"));
  EXPECT_EQ(folder.entries(), 3u);
}

TEST(FileExists, TellsAnErrorFromNothing) {
  const ScratchFolder folder;
  write_atomically(folder / "file", "abc");
  fs::create_symlink("nowhere", folder / "dangling");
  fs::create_symlink("loop", folder / "loop");
  EXPECT_TRUE(file_exists(folder / "file"));
  EXPECT_TRUE(file_exists(folder.path()));
  EXPECT_TRUE(file_exists(folder / "dangling"));
  EXPECT_FALSE(file_exists(folder / "none"));
  EXPECT_FALSE(file_exists(folder / "file/below"));
  EXPECT_TRUE(contains(user_error([&] { file_exists(folder / "loop"); }), (folder / "loop").string(),
                       "Too many levels"));
  EXPECT_TRUE(
      contains(user_error([&] { file_exists(folder / std::string(300, 'n')); }), "File name too long"));
}

TEST(FolderEntries, ListsAllOrTellsWhyNot) {
  const ScratchFolder folder;
  EXPECT_TRUE(folder_entries(folder.path()).empty());
  write_atomically(folder / "file", "abc");
  EXPECT_EQ(folder_entries(folder.path()), std::vector<fs::path>{folder / "file"});
  EXPECT_TRUE(contains(user_error([&] { folder_entries(folder / "none"); }), "no such file"));
  EXPECT_TRUE(contains(user_error([&] { folder_entries(folder / "file"); }), "is a file, not a folder"));
}

TEST(RemoveFile, TellsOfWhatCannotBeRemoved) {
  const ScratchFolder folder;
  write_atomically(folder / "file", "abc");
  remove_file(folder / "file");
  remove_file(folder / "file");
  EXPECT_EQ(folder.entries(), 0u);
  fs::create_directory(folder / "folder");
  EXPECT_TRUE(contains(user_error([&] { remove_file(folder / "folder"); }), "cannot remove",
                       (folder / "folder").string()));
}

TEST(WriteAtomically, PassesOverTheTemporaryOfAKilledProcess) {
  const ScratchFolder folder;
  for (int n = 0; n < 1000; ++n) {
    open_for_writing(folder / (".file." + std::to_string(::getpid()) + "-" + std::to_string(n) + ".tmp"), 0);
  }
  write_atomically(folder / "file", "abc");
  EXPECT_EQ(read_text_file(folder / "file"), "abc");
}

TEST(WriteAtomically, AReaderSeesTheOldOrTheNew) {
  const ScratchFolder folder;
  const std::string one(100000, '1');
  const std::string two(70000, '2');
  write_atomically(folder / "file", one);
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int i = 0; i < 50; ++i) write_atomically(folder / "file", i % 2 == 0 ? two : one);
    done = true;
  });
  while (!done) {
    const std::string seen = read_text_file(folder / "file");
    ASSERT_TRUE(seen == one || seen == two);
  }
  writer.join();
}

}  // namespace
}  // namespace lowtide
