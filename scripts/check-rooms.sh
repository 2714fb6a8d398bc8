#!/usr/bin/env bash
# Holds every #include of lowtide/, python/ and cli/ against the table of rooms in docs/architecture.md: a room includes
# itself, the rooms above it, and what the table of exceptions grants; one that needs no torch includes none of its headers.
#   check-rooms.sh [FOLDER]     of another tree than this one
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

sources=()
for folder in lowtide python cli; do [ -d "$folder" ] && sources+=("$folder"); done
grep -rHnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' "${sources[@]}" \
  --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' |
  awk '
    function room_of(path, parts) {
      split(path, parts, "/")
      return parts[1] == "lowtide" ? parts[1] "/" parts[2] : parts[1]
    }
    function cell(text) {
      gsub(/^[ \t`]+|[ \t`]+$/, "", text)
      return text
    }
    function complain(text) {
      print at ": " text
      failed = 1
    }
    function granted(from, header, i) {
      for (i = 1; i <= exceptions; ++i)
        if (exception_room[i] == from && header ~ exception_pattern[i]) return 1
      return 0
    }

    # The tables of docs/architecture.md, each known by its head.
    FNR == NR {
      count = split($0, cells, "|")
      if (count < 3) table = ""
      else if (cell(cells[2]) == "room") table = cell(cells[3])
      else if (cell(cells[2]) ~ /\/$/) {
        room = cell(cells[2])
        sub(/\/$/, "", room)
        if (table == "what lives there") {
          place[room] = ++rooms
          needs_torch[room] = cell(cells[4]) != "no"
        } else if (table == "may also include") {
          exception_room[++exceptions] = room
          pattern = cell(cells[3])
          gsub(/\./, "[.]", pattern)
          gsub(/\*/, "[^/]*", pattern)
          exception_pattern[exceptions] = "^" pattern "$"
        }
      }
      next
    }

    # FILE:LINE:#include "HEADER"
    {
      if (rooms == 0) exit
      match($0, /:[0-9]+:/)
      file = substr($0, 1, RSTART - 1)
      at = substr($0, 1, RSTART + RLENGTH - 2)
      header = substr($0, RSTART + RLENGTH)
      sub(/^[^"<]*/, "", header)
      own = header ~ /^"/
      sub(/^["<]/, "", header)
      sub(/[">].*$/, "", header)
      ++includes
      from = room_of(file)
      if (!(from in place)) {
        complain("its room, " from "/, is not in the table of docs/architecture.md")
      } else if (!own) {
        if (!needs_torch[from] && header ~ /^(torch|ATen|c10)\//)
          complain(from "/ needs no torch by docs/architecture.md, and includes " header)
      } else if (header !~ /^(lowtide|python|cli)\//) {
        complain("\"" header "\" is not a full path, such as \"lowtide/base/error.h\"")
      } else if (!(room_of(header) in place)) {
        complain(header " is in no room of the table of docs/architecture.md")
      } else if (place[room_of(header)] > place[from] && !granted(from, header)) {
        complain(from "/ must not include " header ": " room_of(header) "/ is below it in docs/architecture.md")
      }
    }
    END {
      if (rooms == 0) { print "docs/architecture.md: no table of rooms (| room | what lives there | ...)"; exit 1 }
      if (includes == 0) { print "no #include found"; exit 1 }
      if (failed) exit 1
      print includes " includes of " rooms " rooms are in order"
    }' docs/architecture.md -
