#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lowtide/base/shards.h"
#include "lowtide/base/torch.h"

namespace lowtide {

// The processes that train one network together, known by their rank from 0 on. Each makes the same calls in the same order,
// and each call waits for all.
class Ranks {
 public:
  virtual ~Ranks() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  bool is_first() const { return rank() == 0; }
  virtual bool is_alone() const { return false; }  // in one process, without anything to talk by

  // The part of every batch that falls to this rank.
  Shards shards_of(std::int64_t total) const;

  // The sum over the nodes of all ranks (see TreeSum), the same bits for any number of them. Every rank has as many nodes,
  // of one shape.
  torch::Tensor sum(std::vector<torch::Tensor> nodes);

  // What every rank has, in their order; of one shape.
  std::vector<torch::Tensor> gather(const torch::Tensor& mine);
  std::vector<std::vector<std::int64_t>> gather(const std::vector<std::int64_t>& mine);
  // Of any length.
  std::vector<std::string> gather(const std::string& mine);

  // Those of rank 0 on all.
  virtual void broadcast(const std::vector<torch::Tensor>& tensors) = 0;

 private:
  // On the first dimension a row for each rank: rows of all ranks; and the rows that every rank has for this one.
  virtual torch::Tensor all_gather(const torch::Tensor& row) = 0;
  virtual torch::Tensor all_to_all(const torch::Tensor& rows) = 0;
  // Where tensors have to lie to be sent.
  virtual torch::Device device() const = 0;
};

// One process, all by itself.
std::shared_ptr<Ranks> alone();

}  // namespace lowtide
