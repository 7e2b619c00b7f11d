-- What the caller of an enqueue writes in the same transaction.
INSERT INTO public.orders (customer, amount) VALUES ($1::text, $2::numeric)
