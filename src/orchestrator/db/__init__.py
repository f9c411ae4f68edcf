"""Everything durable. SQL stands in named files under ``sql/``, one per table family, with typed functions beside."""
