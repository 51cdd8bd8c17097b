// Objects that a lane uses over and over: filled once, then nothing is allocated. As many as were
// ever in use at once; whoever takes them sees to it that a peer cannot raise that without end.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

namespace tcpx {

template <class T>
class Pool {
 public:
  void fill(size_t count) {
    while (all_.size() < count) free_.push_back(add());
  }
  T* take() {
    if (free_.empty()) return add();
    T* object = free_.back();
    free_.pop_back();
    return object;
  }
  void give(T* object) {
    object->reset();
    free_.push_back(object);
  }
  // f may take more.
  template <class F>
  void each(F&& f) {
    for (size_t i = 0; i < all_.size(); ++i) f(all_[i].get());
  }
  // Frees all that is not in use.
  void drain() {
    std::erase_if(all_, [this](auto& object) {
      return std::find(free_.begin(), free_.end(), object.get()) != free_.end();
    });
    all_.shrink_to_fit();
    free_ = {};
  }

 private:
  T* add() {
    all_.push_back(std::make_unique<T>());
    free_.reserve(all_.capacity());
    return all_.back().get();
  }

  std::vector<std::unique_ptr<T>> all_;
  std::vector<T*> free_;
};

}  // namespace tcpx
