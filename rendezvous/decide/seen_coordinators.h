// SPDX-License-Identifier: BSD-3-Clause
//
// Which coordinators a node has seen alive, and when.  A coordinator may begin a round only when
// the workers of the others are dead, so a node that comes to one says when it last saw another
// one.
#pragma once

#include <optional>
#include <string>

#include "store/base/time.h"

namespace ddprun::rendezvous::member {

// When a node last saw that a coordinator lives, and which one.
struct Contact {
  MonoTime at{};
  std::string of;
};

class SeenCoordinators {
 public:
  // This coordinator lives.  `reports_another`: it is to hear of the last contact with another one,
  // as it is where the nodes have several endpoints.
  void note(Contact contact, bool reports_another);

  // The node joins there.  Until that coordinator has a round for it, this can be taken back.
  void note_join(Contact contact, bool reports_another);
  void take_back_join();

  // The coordinator has answered, and so knows of the one before; and it has a round for this node.
  void has_answered();
  void has_round();

  const std::optional<Contact>& last() const { return last_; }
  // Whether the last one is another one than this.
  bool is_last_another(const std::string& coordinator) const;
  // What this coordinator is to hear: the last contact with another one that it does not know of,
  // or else the last one of all.
  std::optional<Contact> for_coordinator(const std::string& coordinator) const;
  // The one that a node which goes is counted by.  Each coordinator that hears it is to count the
  // node, since one may not know of another: empty while there is a contact to be reported.
  std::string counted_by() const;

 private:
  std::optional<Contact> last_;
  // The last with another coordinator than that of `last_`, until that one has answered.
  std::optional<Contact> unreported_;
  std::optional<Contact> before_join_;
  bool can_take_back_ = false;
};

}  // namespace ddprun::rendezvous::member
