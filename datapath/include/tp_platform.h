/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What a platform provides to the pipeline. */
