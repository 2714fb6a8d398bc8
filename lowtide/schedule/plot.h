#pragma once

#include <string>
#include <vector>

#include "lowtide/schedule/runs.h"

namespace lowtide {

enum class Charset { kAscii, kUtf8 };

// What the terminal can show, from LC_ALL, LC_CTYPE, LANG and TERM.
Charset terminal_charset();

// Forward bits over time, at most 80 columns wide: a line of braille dots, or of plain characters.
std::string text_plot(const std::vector<BitRun>& runs, Charset charset);

}  // namespace lowtide
