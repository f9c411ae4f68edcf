"""Everything durable. SQL stands in named files under ``sql/``, one per table family; typed functions stand beside it."""
