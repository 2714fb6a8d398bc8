# The part of this room that needs no tensors, so that it can be fuzzed.
target_sources(lowtide_core PRIVATE ${CMAKE_CURRENT_LIST_DIR}/bert_config.cpp)
