#include "cli/as_rank.h"

#include <fmt/format.h>

#include <cstdio>

#include "lowtide/io/lease.h"

namespace lowtide {

int work_as_rank(const RankEnvironment& mine, const std::string& device, const std::string& problem,
                 const std::function<int(const std::shared_ptr<C10dRanks>&)>& work) {
  constexpr int kFailed = 1;
  std::shared_ptr<C10dRanks> ranks;
  const auto named = [&](const UserError& error) {
    return fmt::format("rank {}: {}", mine.rank, error.what());
  };
  try {
    ranks = C10dRanks::join(mine, device, problem);
    return work(ranks);
  } catch (const RankFailure& failure) {
    if (failure.tells()) std::fputs(fmt::format("lowtide: {}\n", failure.what()).c_str(), stderr);
    return kFailed;
  } catch (const LeaseTaken& taken) {
    if (!ranks->is_first_to_fail()) return kFailed;
    throw LeaseTaken(named(taken));
  } catch (const UserError& error) {
    if (!ranks) throw;
    if (!ranks->is_first_to_fail()) return kFailed;
    throw UserError(named(error));
  } catch (...) {
    if (ranks && !ranks->is_first_to_fail()) return kFailed;
    throw;
  }
}

}  // namespace lowtide
