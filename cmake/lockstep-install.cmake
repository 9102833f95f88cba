# SPDX-License-Identifier: BSD-3-Clause
# Headers, licence, and the package that find_package(lockstep CONFIG) reads.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(lockstep_package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/lockstep")
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/lockstep-config.cmake.in" "${CMAKE_CURRENT_BINARY_DIR}/lockstep-config.cmake"
                              INSTALL_DESTINATION "${lockstep_package_folder}")
# Before 1.0 a minor version may break its users.
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/lockstep-config-version.cmake" COMPATIBILITY SameMinorVersion
                                 ARCH_INDEPENDENT)

install(DIRECTORY include/ DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.hpp")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/lockstep")
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/lockstep-config.cmake" "${CMAKE_CURRENT_BINARY_DIR}/lockstep-config-version.cmake"
              cmake/lockstep-dependencies.cmake cmake/lockstep-images.cmake cmake/lockstep-onnx.cmake cmake/lockstep-atomo.cmake cmake/lockstep-native.cmake cmake/lockstep-compiled.cmake
        DESTINATION "${lockstep_package_folder}")
# The compiled form is made by the build of each program: sources are installed, no library.
install(FILES src/functions.cpp src/kernels.cpp DESTINATION "${lockstep_package_folder}/src")
install(TARGETS lockstep EXPORT lockstep-targets INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT lockstep-targets NAMESPACE lockstep:: DESTINATION "${lockstep_package_folder}")
