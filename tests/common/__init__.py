# SPDX-License-Identifier: Apache-2.0
"""What several suites of tests share; a suite imports no other."""
