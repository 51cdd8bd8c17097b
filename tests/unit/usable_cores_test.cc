#include "topo/usable_cores.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tcpx::topo {
namespace {

TEST(UsableCores, OfAQuota) {
  EXPECT_EQ(cores_of_quota("200000 100000"), 2u);
  EXPECT_EQ(cores_of_quota("200000 100000\n"), 2u);
  EXPECT_EQ(cores_of_quota("150000 100000"), 2u) << "a part of one counts as one";
  EXPECT_EQ(cores_of_quota("1000 100000"), 1u);
  for (const char* none : {"max 100000", "-1 100000", "", " ", "2", "200000 0", "x y"})
    EXPECT_EQ(cores_of_quota(none), 0u) << none;
}

struct Groups : testing::Test {
  std::filesystem::path root;
  void SetUp() override {
    root = std::filesystem::temp_directory_path() / ("tcpx_groups_" + std::to_string(getpid()));
    std::filesystem::create_directories(root);
  }
  void TearDown() override { std::filesystem::remove_all(root); }
  void write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text;
  }
  uint32_t cores(const std::string& membership) {
    return cores_of_groups(membership, root.string());
  }
};

TEST_F(Groups, TheLeastOfAGroupAndThoseItLiesIn) {
  write("a/cpu.max", "300000 100000\n");
  write("a/b/cpu.max", "max 100000\n");
  write("a/b/c/cpu.max", "800000 100000\n");
  EXPECT_EQ(cores("0::/a/b/c\n"), 3u);
  EXPECT_EQ(cores("0::/\n"), 0u);
  EXPECT_EQ(cores("0::/a/b/elsewhere\n"), 3u);
}

TEST_F(Groups, AContainerThatSeesItsGroupAsTheRoot) {
  write("cpu.max", "200000 100000\n");
  EXPECT_EQ(cores("0::/\n"), 2u);
  EXPECT_EQ(cores("0::/docker/0123\n"), 2u) << "the name outside";
}

TEST_F(Groups, OfTheOlderKind) {
  write("cpu/x/cpu.cfs_quota_us", "400000\n");
  write("cpu/x/cpu.cfs_period_us", "100000\n");
  write("cpu/cpu.cfs_quota_us", "-1\n");
  write("cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores("11:memory:/x\n4:cpu,cpuacct:/x\n"), 4u);
  EXPECT_EQ(cores("4:cpuset:/x\n"), 0u);
}

TEST(UsableCores, ThereIsOneAtLeast) {
  EXPECT_GE(usable_cores(), 1u);
}

}  // namespace
}  // namespace tcpx::topo
