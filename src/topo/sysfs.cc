#include "topo/sysfs.h"

#include <dirent.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>

namespace tcpx::topo {

namespace fs = std::filesystem;

bool Sysfs::exists() const {
  std::error_code ignored;
  return fs::is_directory(root_, ignored);
}

std::string Sysfs::line(const std::string& relative) const {
  std::ifstream file(path(relative));
  std::string text;
  std::getline(file, text);
  return text;
}

// Not by the library's iterator, which ends the process where it finds no memory.
std::vector<std::string> Sysfs::names(const std::string& folder) const {
  std::vector<std::string> out;
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(path(folder).c_str()), ::closedir);
  while (const dirent* entry = open == nullptr ? nullptr : ::readdir(open.get()))
    if (std::string name = entry->d_name; name != "." && name != "..") out.push_back(name);
  std::sort(out.begin(), out.end());
  return out;
}

std::string Sysfs::resolved(const std::string& relative) const {
  std::error_code error;
  fs::path root = fs::canonical(root_, error);
  if (error) return {};
  fs::path target = fs::canonical(path(relative), error);
  if (error) return {};
  std::string text = target.lexically_relative(root).string();
  return text.starts_with("..") ? std::string() : text;
}

}  // namespace tcpx::topo
