SELECT current_setting('detent.doctor', true) AS mark
