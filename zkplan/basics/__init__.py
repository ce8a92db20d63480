"""Small parts that every room uses: text for people, time, addresses of this machine, tracing."""
