#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cache/file.h"
#include "cache/folder.h"

namespace sparsekiln::cache {

/// What is known so far of an entry that takes long to make, line by line beside it: a process that is killed
/// loses at most the line it was writing. Whoever holds the key's lock may write.
class Journal {
 public:
  /// Of the entry `name`; looks at nothing yet.
  Journal(Folder folder, const std::string& name);

  /// The whole lines there are; none where there is no journal, or it cannot be read.
  [[nodiscard]] std::vector<std::string> lines() const;
  /// Adds a line (without its newline) in one write. Does nothing where the folder does not allow it: the
  /// work goes on.
  void append(std::string_view line);
  void remove();

 private:
  Folder folder_;
  std::string name_;
  Descriptor file_;  ///< once something was appended
  bool refused_ = false;
};

}  // namespace sparsekiln::cache
