"""Schedules: cron expressions whose due times become plans, without a scheduler process."""

from .handle import Schedule, ScheduleInfo, find, find_all, infos

__all__ = ["Schedule", "ScheduleInfo", "find", "find_all", "infos"]
