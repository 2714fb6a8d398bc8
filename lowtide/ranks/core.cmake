# The part of this room that is free of torch.
target_sources(lowtide_core PRIVATE ${CMAKE_CURRENT_LIST_DIR}/environment.cpp
                                    ${CMAKE_CURRENT_LIST_DIR}/heartbeat.cpp
                                    ${CMAKE_CURRENT_LIST_DIR}/rendezvous.cpp)
