#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cache/file.h"
#include "cache/folder.h"

namespace sparsekiln::cache {

/// The facts known so far about an entry that takes long to make, line by line, in a file next to the entry:
/// a process that is killed loses at most the line that it was writing. Only the process that holds the lock
/// of the key may write.
class Journal {
 public:
  /// The journal of the entry `name`; accesses nothing yet.
  Journal(Folder folder, const std::string& name);

  /// The complete lines; none if there is no journal, or it cannot be read.
  [[nodiscard]] std::vector<std::string> lines() const;
  /// Adds a line (given without its newline) in one write. Does nothing if the folder does not allow it: the
  /// work continues.
  void append(std::string_view line);
  void remove();

 private:
  Folder folder_;
  std::string name_;
  Descriptor file_;  ///< open once something was appended
  bool refused_ = false;
};

}  // namespace sparsekiln::cache
