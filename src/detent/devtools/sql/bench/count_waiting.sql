-- How many on-demand runs wait.
SELECT count(*) AS waiting FROM backlog
