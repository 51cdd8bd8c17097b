#include "topo/sysfs.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

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

std::vector<std::string> Sysfs::names(const std::string& folder) const {
  std::vector<std::string> out;
  std::error_code error;
  fs::directory_iterator entry(path(folder), error), end;
  for (; !error && entry != end; entry.increment(error))
    out.push_back(entry->path().filename().string());
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
