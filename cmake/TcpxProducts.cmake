# libtcpx_p2p.so and libtcpx_p2p.a. Both export the tcpx_* functions of tcpx/tcpx.h and nothing else.
get_property(object_layers GLOBAL PROPERTY TCPX_OBJECT_LAYERS)
set(objects)
foreach(layer IN LISTS object_layers)
  list(APPEND objects $<TARGET_OBJECTS:${layer}>)
endforeach()

# ---- shared
add_library(tcpx_p2p SHARED ${objects})
set(version_script ${PROJECT_SOURCE_DIR}/cmake/tcpx_p2p.map)
target_link_libraries(tcpx_p2p PRIVATE OpenSSL::Crypto Threads::Threads)
target_link_options(tcpx_p2p PRIVATE
  -Wl,-z,text                       # a text relocation is an error, not a warning
  -Wl,-z,nodelete                   # a thread that hangs in a net plugin stays
  -Wl,--exclude-libs,ALL
  -Wl,--version-script=${version_script})
if(NOT (TCPX_SANITIZE AND CMAKE_CXX_COMPILER_ID MATCHES "Clang"))
  # clang leaves the sanitizer runtime to the executable, so its symbols are undefined here.
  target_link_options(tcpx_p2p PRIVATE -Wl,-z,defs)
endif()
set_target_properties(tcpx_p2p PROPERTIES
  LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION} SOVERSION 0 LINK_DEPENDS ${version_script})

# ---- static
add_library(tcpx_p2p_static STATIC ${objects})
set_target_properties(tcpx_p2p_static PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME tcpx_p2p)
# stdc++ and m: a program in C links the archive too.
target_link_libraries(tcpx_p2p_static PRIVATE OpenSSL::Crypto Threads::Threads stdc++ m)

foreach(target tcpx_p2p tcpx_p2p_static)
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  add_library(tcpx::${target} ALIAS ${target})
endforeach()
