// SPDX-License-Identifier: BSD-3-Clause
// Holds the precompiled header of LibTorch, and checks that it compiles alone.
