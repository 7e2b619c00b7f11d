-- All waiting on-demand runs, and the rows of the caller, before the next measurement.
TRUNCATE backlog, public.orders
