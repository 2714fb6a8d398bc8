#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace lowtide {

// Tasks 0 .. count - 1 for libtorch's threads, with work stealing. Each worker has a queue of neighbouring tasks, so that
// the same tasks of the next call are likely to find their data in its core's cache. A worker whose queue is empty takes
// tasks from the others' queues, since cores are seldom equally fast. Which thread runs a task is chance: no result may
// depend on it. The first task of each queue is its own worker's alone, so that every worker has what memory a task needs after
// one call, and not by chance after many.
class TaskQueues {
 public:
  // `grain`: a worker is worth waking for so many tasks.
  TaskQueues(std::int64_t count, std::int64_t grain) : queues_(workers_for(count, grain)) {
    const auto workers = static_cast<std::int64_t>(queues_.size());
    for (std::int64_t i = 0; i < workers; ++i) {
      Queue& queue = queues_[static_cast<std::size_t>(i)];
      queue.first = count * i / workers;
      queue.end = count * (i + 1) / workers;
      queue.next = std::min(queue.first + 1, queue.end);
    }
  }

  // What one thread takes its tasks from: its own queue first, then the others'.
  class Worker {
   public:
    std::optional<std::int64_t> next_task() {
      std::vector<Queue>& queues = all_.queues_;
      if (!std::exchange(has_begun_, true) && queues[queue_].first < queues[queue_].end)
        return queues[queue_].first;
      for (; queues_left_ > 0; --queues_left_, queue_ = (queue_ + 1) % queues.size()) {
        const std::int64_t task = queues[queue_].next.fetch_add(1, std::memory_order_relaxed);
        if (task < queues[queue_].end) return task;
      }
      return std::nullopt;
    }

   private:
    friend class TaskQueues;
    Worker(TaskQueues& all, std::size_t own) : all_(all), queue_(own), queues_left_(all.queues_.size()) {}

    TaskQueues& all_;
    std::size_t queue_, queues_left_;
    bool has_begun_ = false;
  };

  // Calls work(worker) on every thread that is worth waking.
  template <typename Work>
  void run(const Work& work) {
    at::parallel_for(0, static_cast<std::int64_t>(queues_.size()), 1,
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t i = begin; i < end; ++i) {
                         Worker worker(*this, static_cast<std::size_t>(i));
                         work(worker);
                       }
                     });
  }

 private:
  // On a cache line of its own: threads would wait for each other's otherwise.
  struct alignas(64) Queue {
    std::atomic<std::int64_t> next = 0;
    std::int64_t first = 0, end = 0;
  };

  static std::size_t workers_for(std::int64_t count, std::int64_t grain) {
    return static_cast<std::size_t>(
        std::clamp<std::int64_t>(count / std::max<std::int64_t>(grain, 1), 1, at::get_num_threads()));
  }

  std::vector<Queue> queues_;
};

// Calls task(i) for every i in 0 .. count - 1.
template <typename Task>
void parallel_for(std::int64_t count, std::int64_t grain, const Task& task) {
  TaskQueues(count, grain).run([&](TaskQueues::Worker& worker) {
    while (const std::optional<std::int64_t> i = worker.next_task()) task(*i);
  });
}

}  // namespace lowtide
