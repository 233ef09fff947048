// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/seen_coordinators.h"

#include <utility>

namespace ddprun::rendezvous::member {

void SeenCoordinators::note(Contact contact, bool reports_another) {
  if (reports_another && is_last_another(contact.of)) unreported_ = last_;
  last_ = std::move(contact);
}

void SeenCoordinators::note_join(Contact contact, bool reports_another) {
  before_join_ = last_;
  can_take_back_ = true;
  note(std::move(contact), reports_another);
}

void SeenCoordinators::take_back_join() {
  if (std::exchange(can_take_back_, false)) last_ = std::exchange(before_join_, std::nullopt);
}

void SeenCoordinators::has_answered() {
  unreported_.reset();
}

void SeenCoordinators::has_round() {
  has_answered();
  before_join_.reset();
  can_take_back_ = false;
}

bool SeenCoordinators::is_last_another(const std::string& coordinator) const {
  return last_ && last_->of != coordinator;
}

std::optional<Contact> SeenCoordinators::for_coordinator(const std::string& coordinator) const {
  bool is_here = last_ && last_->of == coordinator;
  return is_here && unreported_ ? unreported_ : last_;
}

std::string SeenCoordinators::counted_by() const {
  return last_ && !unreported_ ? last_->of : "";
}

}  // namespace ddprun::rendezvous::member
